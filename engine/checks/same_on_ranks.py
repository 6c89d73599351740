"""The comparison of ranks that train one model: settings, objects and versions must be equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import modules, ranks
from ..arithmetic import of_software
from ..events import Clause, Trigger
from ..names import few
from ..signals import PACKAGE, Signals, Subscription, label, package_of
from ..state import State
from .sharded import refuse_wrappers

if TYPE_CHECKING:
    from torch import Tensor

    from ..engine import Engine

SHOWN = 4
"""The most settings that an error names."""
LONGEST = 120
"""The most characters of a value that an error shows."""
DEEPEST = 4
OF_STATE = ("max_epochs", "max_iterations", "max_steps", "iteration", "step", "epoch")
ORDER = "the order of handlers"
OF_LOSSES = "torch.nn.modules.loss"
NONE = "nothing"
"""What a rank has that lacks a handler or a parameter."""
Entries = dict[str, str]
"""The settings of a rank by name, as text without addresses."""
Differences = dict[str, tuple[str, str]]


def check_same_on_ranks(
    engine: Engine[Any, Any],
    signals: Signals,
    process: Any,
    state: State[Any, Any],
    *,
    samples: int = 0,
    shared: int = 0,
    **given: Any,
) -> tuple[bool, bool]:
    """Compare the settings of the ranks before a run; a difference is an error on all ranks.

    First, True if ranks that should read different data have the same `samples`: a checksum of
    samples that nothing deals out, 0 for none. Second, True if ranks have not the same `shared`: a
    checksum of samples that are dealt out to them, 0 for none. Two messages of 48 bytes: the
    settings themselves are sent only if their checksums differ. Limits, handlers and versions are
    compared over all ranks; objects and the process function over the ranks that read different
    data, since ranks of one model copy may hold stages of it.
    """
    refuse_wrappers(engine.objects.values())  # first, since their shapes may differ between ranks
    group = ranks.data_group()
    common = {**_of_run(state, given), **of_software(), **_of_handlers(engine, signals)}
    own = {"the process function": label(process), **_of_objects(engine.objects)}
    functions = _functions(signals)
    texts = {event: str(names) for event, names in functions.items()}
    samples = samples if ranks.data_world_size() > 1 else 0
    sums = map(_checksum, (common, own, texts))
    numbers = [*sums, min(ranks.members(group)), samples, shared]
    is_common, is_own, has_functions, is_one, repeats, differ = ranks.decided(numbers, _compare)
    if is_one:  # group: what differs is told at once
        common, is_common = {**common, **own}, is_common and is_own
    if not is_common:
        raise ValueError(_message(ranks.gathered(_differences(common, ranks.from_first(common)))))
    if not is_own:
        first = ranks.gathered(own, group=group)[0]
        raise ValueError(_message(ranks.gathered(_differences(own, first))))
    if not has_functions:
        _mark_lonely(signals, ranks.gathered(functions))
    return bool(repeats), bool(differ)


def _compare(rows: Tensor) -> Tensor:
    """By column, whether the ranks agree; of samples, whether two ranks of a group have one.

    Of groups, whether rank 0 is the first of each; of shared samples, whether two ranks differ.
    """
    common, own, functions, group, samples, shared = rows.unbind(1)
    first = group.clamp(0, len(rows) - 1)  # inside `ranks.alone()`, there is only one row
    dealt = [each for each in zip(group.tolist(), samples.tolist(), strict=True) if each[1]]
    alike = common == common[0], own == own[first], functions == functions[0]
    repeats, differ = len({*dealt}) < len(dealt), len({*shared.tolist()} - {0}) > 1
    return rows.new_tensor([*(each.all() for each in alike), not group.any(), repeats, differ])


def _functions(signals: Signals) -> dict[str, list[str]]:
    """The names of the functions that a script has attached for all ranks, by event."""
    return {
        repr(event): sorted(each.name for each in filter(_is_shared, signal.subscriptions))
        for event, signal in signals.items()
    }


def _is_shared(subscription: Subscription) -> bool:
    """True for a function that a script has attached on all ranks."""
    return not (subscription.handler or subscription.local)


def _mark_lonely(signals: Signals, found: list[dict[str, list[str]]]) -> None:
    """Mark functions that only this rank has as local, if it has all functions of other ranks.

    Else a function of another name on another rank may be the partner of a function here.
    """
    own = found.pop(ranks.rank())
    for event, signal in signals.items():
        names = {name for each in found for name in each.get(repr(event), ())}
        if names.issubset(own[repr(event)]):
            for each in filter(_is_shared, signal.subscriptions):
                each.local = each.name not in names
            signal.changed()


def _checksum(entries: Entries) -> int:
    text = "\n".join(f"{name}={entries[name]}" for name in sorted(entries))
    return int.from_bytes(sha256(text.encode()).digest()[:7])


def _of_run(state: State[Any, Any], given: Mapping[str, Any]) -> Entries:
    found = {name: getattr(state, name) for name in OF_STATE}
    found["max_batches"] = state.control.max_batches
    found["ranks that read different data"] = ranks.data_world_size()
    return {name: repr(value) for name, value in {**found, **given}.items()}


def _of_handlers(engine: Engine[Any, Any], signals: Signals) -> Entries:
    """The package's handlers that all ranks must have, and functions that use rank 0's clock."""
    found: Entries = {}
    common = {n: e for n, e in engine.handlers.items() if n not in engine.local}
    ours = {n: e for n, e in common.items() if package_of(type(e)) == PACKAGE}
    for name, each in ours.items():
        found |= {name: type(each).__name__, **_texts(name, _settings_of(each))}
    found[ORDER] = ", ".join(ours)  # messages of two handlers of one event would meet each other
    for one in (one for signal in signals.values() for one in signal.subscriptions):
        if _is_shared(one) and any(clause.seconds is not None for clause in one.trigger.clauses):
            found[f"{one.name}()"] = repr(one.trigger)
    return found


def _of_objects(objects: Mapping[str, Any]) -> Entries:
    found: Entries = {}
    for name, each in objects.items():
        found[name] = type(each).__name__
        if hasattr(each, "param_groups"):
            groups = each.param_groups
            for number, group in enumerate(groups):
                prefix = name if len(groups) == 1 else f"{name}.{number}"
                found[f"{prefix}.params"] = f"{len(group['params'])} parameters"
                left_out = ("params", "param_names")
                found |= _texts(prefix, ((k, v) for k, v in group.items() if k not in left_out))
        elif hasattr(each, "optimizer") and hasattr(each, "step"):
            found |= _texts(name, _settings_of(each))
        elif hasattr(each, "named_parameters"):
            found |= _of_module(name, each)
    return found


def _of_module(name: str, module: Any) -> Entries:
    """The names, shapes and dtypes of parameters and persistent buffers."""
    found: Entries = {}
    for key, each in module.named_parameters():
        form = _form(each) if each.requires_grad else f"{_form(each)}, frozen"
        found[f"{name}.{modules.without_wrappers(key)}"] = form
    order = ", ".join(found)
    hidden = {
        f"{path}.{key}".lstrip(".")
        for path, each in module.named_modules()
        for key in each._non_persistent_buffers_set
    }
    for key, each in module.named_buffers():
        if key not in hidden:
            found[f"{name}.{modules.without_wrappers(key)}"] = _form(each)
    return {**found, f"the order of the parameters of {name}": order}


def _form(tensor: Any) -> str:
    if "Uninitialized" in type(tensor).__name__:
        return "not initialized"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _texts(name: str, settings: Iterable[tuple[str, Any]]) -> Entries:
    """The settings that can be compared, as text."""
    return {f"{name}.{k}": text for k, each in settings if (text := _text(each)) is not None}


def _settings_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public attributes that must be equal on all ranks, without data and file paths."""
    if not is_dataclass(thing):
        own = getattr(thing, "__dict__", {}).items()
        yield from ((k, value) for k, value in own if k[0] != "_" and k != "training")
        return
    for each in fields(thing):
        if each.name.startswith("_") or not each.repr or not hasattr(thing, each.name):
            continue
        kind, value = str(each.type), getattr(thing, each.name)
        # By the annotation: nothing else tells a place, of which hosts have their own, from a name.
        is_place = "Path" in kind and not isinstance(value, bool | None)
        if not is_place and "Iterable" not in kind:
            yield each.name, value


def _text(value: Any, depth: int = 0) -> str | None:
    """A value as text that is the same in each process; None for a value that is not compared."""
    if isinstance(value, Path) or depth > DEEPEST:
        return None
    if value is None or isinstance(value, str | Number | Enum):
        return repr(value)
    if isinstance(value, Clause):
        return repr(value) if value.where is None else None
    if isinstance(value, Trigger):
        return None if None in map(_text, value.clauses) else repr(value)
    if isinstance(value, partial):
        value = value.func, value.args, value.keywords
    elif isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        texts = [_text(each, depth + 1) for each in value]
        if not isinstance(value, list | tuple):
            texts.sort(key=str)
        return None if None in texts else f"({', '.join(map(str, texts))})"
    if hasattr(value, "fast_dtype"):  # torch.autocast
        return f"autocast({value.fast_dtype})"
    if hasattr(value, "__qualname__"):
        return label(value)
    if hasattr(value, "numel"):
        return repr(value.item()) if value.numel() == 1 else None
    kind, name = type(value), type(value).__name__
    if kind.__module__ == OF_LOSSES or (package_of(kind) == PACKAGE and is_dataclass(value)):
        name += f"({', '.join(f'{k}={_text(e, depth + 1)}' for k, e in _settings_of(value))})"
    return name


def _differences(own: Entries, first: Entries) -> Differences:
    """By name: the differing settings, as this rank's text and the first rank's text."""
    names = [name for name in {**first, **own} if own.get(name) != first.get(name)]
    return {n: (own.get(n, NONE), first.get(n, NONE)) for n in names[: 2 * SHOWN]}


def _message(found: list[Differences]) -> str:
    """The error message for all ranks, from each rank's differences from the first rank."""
    names = [*dict.fromkeys(name for each in found for name in each)]
    lacking = {name for each in found for name, pair in each.items() if NONE in pair}
    names = [n for n in names if not any(n.startswith(f"{other}.") for other in lacking - {n})]
    names = [n for n in names if n != ORDER or not lacking]
    said = "; ".join(_said(name, found) for name in names[:SHOWN])
    more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"the ranks do not run the same: {said}{more}. Give all ranks the same script and "
        "settings; attach what is for one rank by on_rank(0, handler); ranks that train models of "
        "their own run with uneven='ignore'"
    )


def _said(name: str, found: list[Differences]) -> str:
    """What the odd ranks have for a setting, and then what most of the ranks have."""
    first = next(each[name][1] for each in found if name in each)
    have = [each[name][0] if name in each else first for each in found]
    usual, said = Counter(have).most_common(1)[0][0], list[str]()
    for value in dict.fromkeys(value for value in have if value != usual):
        odd = [number for number, each in enumerate(have) if each == value]
        who = f"rank {odd[0]} has" if len(odd) == 1 else f"ranks {few(odd, 8)} have"
        said.append(f"{who} {name}={_short(value)}")
    others = "the others have" if len(have) > 2 else "the other has"
    return f"{', '.join(said)} where {others} {_short(usual)}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
