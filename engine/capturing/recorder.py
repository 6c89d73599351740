"""The one place where a device records what is launched on it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

Result = TypeVar("Result")
CUDA_GRAPHS = "cuda-graphs"
WARMING = 3
"""So many times a part runs as it is before it is recorded, as torch does for its own captures."""
MANY = 8
"""The most recordings of a part: of a pass for so many sizes of batches, or of an optimizer."""


@runtime_checkable
class Recorder(Protocol):
    """A device that records what is launched on it, and launches all of it again by one call.

    A recording has the numbers of Python, the sizes and the addresses that it was made with.
    """

    def aside(self) -> AbstractContextManager[object]:
        """Where a part runs that is to be recorded later."""
        ...

    def record(self, launch: Callable[[], Result]) -> tuple[Callable[[], object], Result]:
        """Record what `launch` would do, and leave all tensors and random generators as they are.

        Returns:
            A function that does it, at each call; and what `launch` returned, whose tensors have
            their contents after such a call.
        """
        ...


class CudaGraphs:
    """Records by `torch.cuda.CUDAGraph`; all recordings share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        """Record on this device; its stream is made for the first part."""
        self.device = device
        self._stream: Any = None
        self._pool: Any = None

    @property
    def stream(self) -> Any:
        """The stream on which parts run before they are recorded, and are recorded.

        Libraries make handles and workspaces for each stream, which they cannot while it records.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
            self._pool = torch.cuda.graph_pool_handle()
        return self._stream

    @contextmanager
    def aside(self) -> Generator[None]:
        """Run a part on the stream of the recordings, in its turn."""
        main, stream = torch.cuda.current_stream(self.device), self.stream
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            yield
        main.wait_stream(stream)

    def record(self, launch: Callable[[], Result]) -> tuple[Callable[[], object], Result]:
        """Record what `launch` would do."""
        stream, graph = self.stream, torch.cuda.CUDAGraph()
        main = torch.cuda.current_stream(self.device)
        collects = gc.isenabled()
        gc.disable()  # what it frees may be memory of the device, in the midst of the recording
        try:
            # Other threads, such as those that pin batches or write checkpoints, go on meanwhile.
            with (
                torch.cuda.device(self.device),
                torch.cuda.stream(main),  # torch leaves its own stream on if a recording fails
                torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"),
            ):
                made = launch()
        finally:
            if collects:
                gc.enable()
        return graph.replay, made


def recorder_of(compile: Any, place: torch.device, whose: str) -> Recorder | None:
    """What records parts of a step for `compile=`; None if nothing is to be recorded.

    Raises:
        ValueError: CUDA graphs are asked for, and the model is on another device.
    """
    if isinstance(compile, Recorder):
        return compile
    if compile != CUDA_GRAPHS:
        return None
    if place.type != "cuda":
        raise ValueError(
            f"{whose}(compile={CUDA_GRAPHS!r}) records CUDA graphs, which needs a GPU, and the "
            f"model is on {str(place)!r}: device='cuda', or leave compile= out"
        )
    return CudaGraphs(place)
