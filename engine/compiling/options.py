"""What `compile=` takes, and the arguments for torch.compile that it means."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

Function = TypeVar("Function", bound=Callable[..., Any])
Compile = bool | Mapping[str, Any]
"""True for torch.compile as it is, or its arguments by name: `{"mode": "max-autotune"}`."""

MANY = 64
"""After so many graphs of a function torch no longer compiles it; its own default is 8."""


def options_of(compile: Any, whose: str) -> dict[str, Any]:
    """The arguments for torch.compile, if something is to be compiled.

    Args:
        compile: As the script gave it.
        whose: The function that it was given to, for an error.

    Raises:
        TypeError: It is neither a bool nor a mapping.
        ValueError: It names what torch.compile does not know, or is `"cuda-graphs"`, which is gone.

    >>> options_of({"backend": "eager"}, "supervised")
    {'dynamic': False, 'backend': 'eager'}
    """
    if compile == "cuda-graphs":
        raise ValueError(
            f"{whose}(compile={compile!r}) is gone: write compile={{'mode': 'reduce-overhead'}}, "
            "by which torch records CUDA graphs itself"
        )
    if not (compile is True or isinstance(compile, Mapping)):
        hint = f": compile={{'mode': {compile!r}}}" if isinstance(compile, str) else ""
        raise TypeError(
            f"{whose}(compile={compile!r}): needs True, or arguments of torch.compile by name, "
            f"such as {{'mode': 'max-autotune'}}{hint}"
        )
    given = {} if compile is True else dict(compile)
    if unknown := [name for name in given if name not in _known()]:
        raise ValueError(
            f"{whose}(compile={given!r}): torch.compile of torch {torch.__version__} has no "
            f"argument {', '.join(map(repr, unknown))}; it has {', '.join(_known())}"
        )
    # A graph for several sizes depends on the size that came first, which is another in a
    # resumed run: its results would differ in the last bits.
    options = {"dynamic": False, **given}
    try:
        compiled(len, options)
    except Exception as error:
        error.add_note(f"{whose}(compile={given!r}) gives these arguments to torch.compile")
        raise
    return options


def compiled(function: Function, options: Mapping[str, Any]) -> Function:
    """The compiled function; its graphs do not count towards the limit of other functions."""
    own = {"isolate_recompiles": True, "recompile_limit": MANY}  # of newer torch
    own = {name: value for name, value in own.items() if name in _known()}
    make: Any = torch.compile  # its arguments have many types
    made: Function = make(function, **{**own, **options})
    return made


def compiled_to_keep(function: Function, options: Mapping[str, Any]) -> Function:
    """Like `compiled`, but results may be kept: copies, as CUDA graphs overwrite their results."""
    made: Any = compiled(function, options)
    if not replays(options):
        return made  # type: ignore[no-any-return]

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return tree_map_only(Tensor, Tensor.clone, made(*arguments))

    return call  # type: ignore[return-value]


def replays(options: Mapping[str, Any]) -> bool:
    """True if torch records CUDA graphs and replays them, where the model is on a GPU.

    >>> replays({"mode": "max-autotune"}), replays({"mode": "max-autotune-no-cudagraphs"})
    (True, False)
    """
    by_option = (options.get("options") or {}).get("triton.cudagraphs", False)
    return by_option or options.get("mode") in ("reduce-overhead", "max-autotune")


@cache
def _known() -> tuple[str, ...]:
    """The names of the arguments of torch.compile, but for the function itself."""
    return tuple(inspect.signature(torch.compile).parameters)[1:]
