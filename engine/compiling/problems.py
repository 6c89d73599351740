"""What an error of torch.compile says beside its own message."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Result = TypeVar("Result")
PLACES = ("torch._dynamo", "torch._inductor", "torch._functorch")
ADVICE = (
    "torch.compile was asked for by compile=, and failed. Leave compile= out to see whether the "
    "step runs without it; compile={'backend': 'aot_eager'} traces the step without making code "
    "for it, which tells a model that cannot be traced from code that cannot be built. On a CPU "
    "code is built by a C++ compiler: install g++, or name one in the environment by CXX"
)


def explained(process: Callable[..., Result]) -> Callable[..., Result]:
    """The function, whose errors of torch.compile say what asked for it and what to do."""

    @wraps(process)
    def process_compiled(state: Any, batch: Any) -> Result:
        try:
            return process(state, batch)
        except Exception as error:
            if type(error).__module__.startswith(PLACES):
                error.add_note(ADVICE)
            raise

    return process_compiled
