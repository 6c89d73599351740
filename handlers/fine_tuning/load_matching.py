"""Pretrained weights: those whose names and shapes match are loaded, and the rest is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ...engine import few
from ...engine.modules import (
    box_of,
    copy_into,
    copy_part,
    is_spread,
    local,
    plain_names,
    unwrap,
    without_wrappers,
)
from ..checkpoint import Saved, StoredTensor, dcp_weights, weights_at

logger: logging.Logger = logging.getLogger("camshaft")

Given = Tensor | StoredTensor
SHOWN = 5
"""Names of a kind in a report."""


@dataclass(frozen=True)
class Matching:
    """What was loaded of a source, and what was not; print it for a report."""

    source: str
    loaded: list[str] = field(default_factory=list)
    untouched: list[str] = field(default_factory=list)
    """Weights of the model that the source does not have: they stay as they were."""
    unused: list[str] = field(default_factory=list)
    """Weights of the source that the model does not have."""
    reshaped: list[str] = field(default_factory=list)
    """Weights with other shapes, each with both shapes: they stay as they were."""

    def __str__(self) -> str:
        count = len(self.loaded) + len(self.untouched) + len(self.reshaped)
        lines = [f"loaded {len(self.loaded)} of {count} weights from {self.source}"]
        rest = {
            "with another shape": self.reshaped,
            "not in the source": self.untouched,
            "not in the model": self.unused,
        }
        for what, names in rest.items():
            if names:
                more = f", ... ({len(names)} in all)" if len(names) > SHOWN else ""
                lines.append(f"  {what}: {', '.join(names[:SHOWN])}{more}")
        return "\n".join(lines)


def load_matching(
    model: Module,
    source: str | Path | Saved | Mapping[str, Any],
    *,
    object: str = "model",
    rename: Callable[[str], str] | None = None,
) -> Matching:
    """Load the weights whose names and shapes match into a model; report the rest.

    Call it before the run starts. A run that resumes loads its own checkpoint afterwards, strictly.
    If something does not match, the report is logged as well.

    Args:
        model: Where to load them; wrappers such as DistributedDataParallel make no difference. Of
            a sharded model, each rank reads its own shards: all ranks have to call this.
        source: A `.safetensors` file; a file of `torch.save`, which is read with
            `weights_only=True`; a checkpoint, an export, or a directory of them, whose newest is
            read; a directory with a file `<object>.safetensors`, or of
            `torch.distributed.checkpoint`; or a state dict.
        object: Whose weights, where the source has those of several objects.
        rename: What to make of a name in the source, such as
            `lambda name: name.removeprefix("encoder.")`.

    Raises:
        FileNotFoundError: The path does not exist, or the directory has no weights.
        ValueError: Nothing matches, `rename` gives two weights one name, or the source has no such
            object.

    >>> import torch
    >>> small, large = torch.nn.Linear(2, 1), torch.nn.Sequential(torch.nn.Linear(2, 1))
    >>> print(load_matching(large, small.state_dict(), rename=lambda name: f"0.{name}"))
    loaded 2 of 2 weights from a state dict
    """
    inner = unwrap(model)
    state = inner.state_dict(keep_vars=True)
    places = {plain: name for name, plain in plain_names(inner, state).items()}
    own = {plain: state[name] for plain, name in places.items()}
    # Ranks that share a model read it together: each verifies a part of the files.
    together = any(map(is_spread, own.values()))
    given = _plain(_weights_in(source, object, together), own, rename)
    fits = [name for name in own if name in given and _fits(own[name], given[name])]
    shown = "a state dict" if isinstance(source, Mapping) else getattr(source, "path", source)
    if not fits:
        raise ValueError(
            f"nothing in {shown} fits the model: it has {few(map(repr, given))}, and the model has "
            f"{few(map(repr, own))}; rename= can change its names"
        )
    for name in filter(lambda name: is_spread(own[name]), fits):
        value = given[name]
        if isinstance(value, StoredTensor):
            copy_part(local(own[name]), value.read(box_of(own[name])))
        else:
            copy_into(own[name], value)
        given[name] = own[name]
    values = {name: given[name] for name in fits}
    whole = {n: e.read() if isinstance(e, StoredTensor) else e for n, e in values.items()}
    inner.load_state_dict({places[name]: value for name, value in whole.items()}, strict=False)
    tied = {_memory(own[name]) for name in fits}
    report = Matching(
        str(shown),
        fits,
        [n for n in own if n not in given and not _is_tied(own[n], tied)],
        [name for name in given if name not in own],
        [f"{n} {_shapes(given[n], own[n])}" for n in own if n in given and n not in fits],
    )
    if report.untouched or report.unused or report.reshaped:
        logger.warning("%s", report)
    return report


def _weights_in(
    source: str | Path | Saved | Mapping[str, Any], object: str, together: bool
) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        content = source
    else:
        path = source if isinstance(source, Saved) else Path(source)
        content = weights_at(path, object, together=together, other=dcp_weights)
    if content is not source and all(isinstance(e, StoredTensor) for e in content.values()):
        return content
    for name in (object, "state_dict", "model_state_dict"):
        if isinstance(inner := content.get(name), Mapping):
            return inner
    if any(isinstance(value, Tensor) for value in content.values()):
        return content
    raise ValueError(
        f"the source has no {object!r}; it has {few(map(repr, content))}: pass object="
    )


def _plain(
    weights: Mapping[str, Any], own: Mapping[str, Any], rename: Callable[[str], str] | None
) -> dict[str, Given]:
    """The tensors by their names without wrappers; a model's own part may be called `module`."""
    is_wrapped = own.keys().isdisjoint(weights) and all(n.startswith("module.") for n in weights)
    plain: dict[str, Given] = {}
    for name, value in weights.items():
        if isinstance(value, Given):
            short = without_wrappers(name.removeprefix("module." if is_wrapped else ""))
            new = rename(short) if rename else short
            if plain.get(new, value) is not value:
                raise ValueError(
                    f"the source has two weights for {new!r}, one of them is {name!r}: rename= has "
                    "to give each a name of its own, such as one that the model lacks"
                )
            plain[new] = value
    return plain


def _fits(own: Any, given: Given) -> bool:
    return is_lazy(own) or (isinstance(own, Tensor) and own.shape == given.shape)


def _is_tied(own: Any, places: set[int]) -> bool:
    """True for a weight that is the same tensor as a loaded one, which files hold once."""
    return isinstance(own, Tensor) and not is_lazy(own) and _memory(own) in places


def _memory(own: Tensor) -> int:
    # A rank's part of a small weight may be empty.
    return id(own) if is_spread(own) else own.data_ptr()


def _shapes(given: Given, own: Any) -> str:
    return f"{[*given.shape]} -> {[*own.shape]}" if isinstance(own, Tensor) else "no tensor"
