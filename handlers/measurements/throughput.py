"""The speed of a run, and its time of waiting for data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from socket import gethostname
from time import perf_counter
from typing import Any, Literal

import torch

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, first_length, ranks
from ..common import AT_EACH_ROW, scalars

logger: logging.Logger = logging.getLogger("camshaft")

Count = Callable[[Any], Any]
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
}
"""Dense bfloat16 (float16 before the A100) by NVIDIA's data sheets; the first name that fits."""


@dataclass(frozen=True, eq=False)
class Throughput:
    """Measure time, samples and tokens per second, and the utilisation of the device.

    The metrics are means over the iterations since they were last written:

    - `"data_time"`: seconds that an iteration waited for its batch; `"step_time"`: seconds that it
      took.
    - `"samples_per_second"`, `"tokens_per_second"`: of all ranks together.
    - `"flops_per_second"`, and `"mfu"`, the model FLOPs utilisation: the FLOPs of the model
      divided by the FLOPs that the devices can do in that time.
    - On several ranks, `"data_time/slowest"`, `"data_time/median"`, `"data_time/fastest"` and
      `"data_time/slowest_rank"`, and the same of `"step_time"`. A line of the log names the ranks
      with their hosts. A step includes the wait for other ranks, so the rank with a long
      `data_time` and a short `step_time` is the one that the others wait for.

    Validation, saves and other work between iterations are left out. This handler never waits for
    an accelerator: the host runs ahead of it, so the times are right over many iterations but not
    for a single one. Attach this handler after handlers that report, or their time counts as
    waiting for data.

    Chowdhery et al., 2022: PaLM, appendix B, for the utilisation.

    Args:
        samples: The samples of a batch; by default the length of its first tensor.
        tokens: The tokens of a batch, such as `lambda batch: batch[0].numel()`.
        flops: The FLOPs of a batch, forward and backward; or `"measure"` to count them by torch's
            `FlopCounterMode` in the first iteration of the run, in proportion to samples.
        peak_flops: The FLOPs per second of one device; by default known for common devices.
        when: When to write; by default when loggers write a row.

    >>> engine = Engine(lambda state, batch: None, Throughput(samples=len))
    >>> list(engine.run([[1, 2]] * 3, max_epochs=1).metrics)
    ['data_time', 'step_time', 'samples_per_second']
    """

    samples: Count = first_length
    _: KW_ONLY
    tokens: Count | None = None
    flops: Count | Literal["measure"] | None = None
    peak_flops: float | None = None
    when: EventEnum | Trigger = AT_EACH_ROW

    def __post_init__(self) -> None:
        allowed = {"samples": (), "tokens": (None,), "flops": (None, "measure")}
        for name, others in allowed.items():
            if not callable(count := getattr(self, name)) and count not in others:
                raise TypeError(
                    f"Throughput({name}={count!r}): needs a function of the batch that gives a "
                    "number; flops= may be 'measure' instead"
                )
        if self.peak_flops is not None and not self.peak_flops > 0:
            raise ValueError(f"Throughput(peak_flops={self.peak_flops!r}): needs a number above 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look at the clock around each iteration."""
        between = Events.STARTED | Events.EPOCH_STARTED | Events.ITERATION_COMPLETED | Events.SAVING
        engine.on(Events.ITERATION_STARTED, stage=Stage.REPORT)(self.begin)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.end)
        engine.on(self.when, stage=Stage.MEASURE)(self.write)
        engine.on(between, stage=Stage.REPORT)(self.wait)
        if self.flops == "measure":
            engine.on(Events.CLOSED)(self.stop_counting)

    def wait(self, state: State[Any, Any]) -> None:
        """Start the time of waiting for data."""
        state.recall(self, Clock, saved=False).mark = perf_counter()

    def begin(self, state: State[Any, Any]) -> None:
        """Start the time of the iteration."""
        clock = state.recall(self, Clock, saved=False)
        if self.flops == "measure" and state.recall(self, Flops).per_sample is None:
            clock.count_flops()
        now = perf_counter()
        clock.data += now - clock.mark
        clock.mark = now

    def end(self, state: State[Any, Any]) -> None:
        """Stop the time of the iteration, and count its batch."""
        clock = state.recall(self, Clock, saved=False)
        clock.step += perf_counter() - clock.mark
        clock.iterations += 1
        # A rank without a share of a short batch trains on a sample of another rank.
        is_own = state.share != 0
        samples = self.samples(state.batch)
        clock.add("samples", samples if is_own else 0)
        if self.tokens is not None:
            clock.add("tokens", self.tokens(state.batch) if is_own else 0)
        if clock.counter is not None:
            samples = float(samples)
            state.recall(self, Flops).per_sample = clock.counted_flops() / (samples or 1.0)
            clock.reset()  # counting took longer than the step
        elif callable(self.flops):
            clock.add("flops", self.flops(state.batch) if is_own else 0)

    def write(self, state: State[Any, Any]) -> None:
        """Write the metrics since the last time, with one question to all ranks.

        On several ranks, they also say which rank is slow.
        """
        clock = state.recall(self, Clock, saved=False)
        if not clock.iterations:
            return
        counts = scalars(clock.counts)
        if self.flops == "measure":
            counts["flops"] = counts["samples"] * (state.recall(self, Flops).per_sample or 0.0)
        own = {name: each / clock.seconds for name, each in counts.items()}
        times = {name: each / clock.iterations for name, each in clock.times.items()}
        state.metrics.update(times)
        speeds = ranks.gathered_at_first(Speed(gethostname(), times, own))
        # Rank 0 answers, so that no other rank reads what thousands of ranks wrote.
        rates, comparison = ranks.from_first(together(speeds) if speeds else ({}, {}))
        state.metrics.update(comparison)
        state.metrics.update({f"{name}_per_second": rate for name, rate in rates.items() if rate})
        peak = self.peak_flops or (peak_of_device() if "flops" in rates else None)
        if peak is not None and "flops" in rates:
            state.metrics["mfu"] = rates["flops"] / (peak * ranks.world_size())
        clock.reset()

    def stop_counting(self, state: State[Any, Any]) -> None:
        """Stop counting FLOPs if a step has failed."""
        clock = state.recall(self, Clock, saved=False)
        if clock.counter is not None:
            clock.counted_flops()


@dataclass(slots=True)
class Clock:
    """The times and counts since the last report; not saved, since they are wall-clock time."""

    mark: float = 0.0
    data: float = 0.0
    step: float = 0.0
    iterations: int = 0
    counts: dict[str, Any] = field(default_factory=dict)
    counter: Any = None
    """Counts the FLOPs of an iteration by torch's own formulas."""

    @property
    def seconds(self) -> float:
        """The time of iterations and of waiting for their data."""
        return self.data + self.step

    @property
    def times(self) -> dict[str, float]:
        """Both parts of it, by the names of their metrics."""
        return {"data_time": self.data, "step_time": self.step}

    def add(self, name: str, number: Any) -> None:
        """Add to a count; tensors stay on their device."""
        self.counts[name] = self.counts.get(name, 0) + number

    def reset(self) -> None:
        """Begin a new interval; the mark stays."""
        self.data, self.step, self.iterations, self.counts = 0.0, 0.0, 0, {}

    def count_flops(self) -> None:
        """Begin to count FLOPs."""
        from torch.utils.flop_counter import FlopCounterMode

        self.counter = FlopCounterMode(display=False)
        self.counter.__enter__()

    def counted_flops(self) -> float:
        """Stop counting; return the number."""
        counter, self.counter = self.counter, None
        counter.__exit__(None, None, None)
        return float(counter.get_total_flops())


@dataclass(frozen=True)
class Speed:
    """What a rank tells the others: the times of an iteration, and counts per second."""

    host: str
    times: dict[str, float]
    rates: dict[str, float]


def together(speeds: Sequence[Speed]) -> tuple[dict[str, float], dict[str, float]]:
    """On rank 0: the counts per second of all ranks, and how the times of the ranks compare."""
    averaged = sorted(ranks.members(ranks.data_group()))  # others have the same batches
    rates = dict[str, float]()
    for name, rate in (pair for number in averaged for pair in speeds[number].rates.items()):
        rates[name] = rates.get(name, 0.0) + rate
    return rates, compared(speeds) if len(speeds) > 1 else {}


def compared(speeds: Sequence[Speed]) -> dict[str, float]:
    """The slowest, the median and the fastest rank, as metrics; the log names them with hosts."""
    metrics, texts = dict[str, float](), []
    for name in speeds[0].times:
        order = sorted(range(len(speeds)), key=lambda number: -speeds[number].times[name])
        chosen = {"slowest": order[0], "median": order[len(order) // 2], "fastest": order[-1]}
        metrics |= {f"{name}/{word}": speeds[n].times[name] for word, n in chosen.items()}
        metrics[f"{name}/slowest_rank"] = order[0]
        each = (
            f"{word} {speeds[n].times[name]:.3g} s (rank {n}, {speeds[n].host})"
            for word, n in chosen.items()
        )
        texts.append(f"{name}: {', '.join(each)}")
    logger.info("%s", "; ".join(texts))
    return metrics


@dataclass
class Flops:
    """The FLOPs of a sample, once they are counted; saved with the run.

    A resumed run does not count again: counting may change the bits of the counted step.
    """

    per_sample: float | None = None


def peak_of_device(name: str | None = None) -> float | None:
    """The peak FLOPs per second of a device; None if it is unknown.

    >>> peak_of_device("NVIDIA H100 80GB HBM3")
    989000000000000.0
    """
    if name is None:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    words = name.replace("-", " ")
    return next((peak for key, peak in PEAKS.items() if f" {key} " in f" {words} "), None)
