"""Groups of parameters for an optimizer, by patterns of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch.nn import Module, Parameter
from torch.optim import Optimizer

from ...engine import few
from ..common import Cell, aligned

DEFAULT = "default"
Pattern = str | re.Pattern[str] | Callable[[str, Parameter], bool]
"""A glob such as `"backbone.*"`, a compiled regular expression, or a function."""
TOKEN = re.compile(r"\\(\W)|(\()\?:|(^\^|\$$|\\[AZ])|(?:\\[dw][*+]?|\.[*+])\??")
"""In a regular expression: an escaped sign, a group, an end, and what stands for any text."""


def parameter_groups(
    model: Module, patterns: Mapping[Pattern, Mapping[str, Any]], *, frozen: bool = False
) -> list[dict[str, Any]]:
    """Sort the parameters of a model into groups with options of their own.

    The first pattern that matches a parameter takes it. Parameters that match no pattern are in the
    group `"default"`, with the optimizer's own options. Frozen parameters are left out; a shared
    parameter is in one group only. The groups have names, which the metrics of their rates use.

    Args:
        model: The model, not yet wrapped by DistributedDataParallel or torch.compile.
        patterns: For each group its options, such as `{"backbone.*": {"lr": 1e-4}}`, by a glob,
            a compiled regular expression, or a function of name and parameter. The option
            `"name"` names the group.
        frozen: True to include frozen parameters, because they are to be thawed later.

    Raises:
        ValueError: A pattern takes no parameter, or two groups have one name.

    >>> from torch.nn import Linear, Sequential
    >>> model = Sequential(Linear(2, 3), Linear(3, 1))
    >>> groups = parameter_groups(model, {"0.*": {"lr": 0.01}})
    >>> [(group["name"], len(group["params"])) for group in groups]
    [('0', 2), ('default', 2)]
    """
    if not isinstance(patterns, Mapping):
        raise TypeError(f"parameter_groups got {patterns!r}; it needs a dict: pattern -> options")
    named = {name: each for name, each in model.named_parameters() if frozen or each.requires_grad}
    groups = {pattern: dict[str, Parameter]() for pattern in patterns}
    rest = dict[str, Parameter]()
    for name, parameter in named.items():
        found = (pattern for pattern in patterns if matches(pattern, name, parameter))
        first = next(found, None)
        (rest if first is None else groups[first])[name] = parameter
    for pattern, members in groups.items():
        if not members:
            raise ValueError(_empty(pattern, model, named))
    made = [
        {"name": group_name(pattern), **patterns[pattern], "params": list(members.values())}
        for pattern, members in groups.items()
    ]
    if rest:
        made.append({"name": DEFAULT, "params": list(rest.values())})
    names = [group["name"] for group in made]
    if len(set(names)) < len(names):
        raise ValueError(f"two groups have one name: {names}; give one of them another by 'name'")
    return made


def describe_groups(groups: Optimizer | Sequence[Mapping[str, Any]]) -> str:
    """A table of the parameter groups: name, tensors, elements, how many train, and options.

    >>> from torch.nn import Linear
    >>> print(describe_groups(parameter_groups(Linear(2, 3), {"bias": {"weight_decay": 0.0}})))
    group    tensors  elements  trainable  options
    bias           1         3          3  weight_decay=0.0
    default        1         6          6
    total          2         9          9
    """
    groups = groups.param_groups if isinstance(groups, Optimizer) else groups
    rows: list[list[Cell]] = [["group", "tensors", "elements", "trainable", "options"]]
    totals = [0, 0, 0]
    for number, group in enumerate(groups):
        members: list[Parameter] = list(group["params"])
        trainable = sum(each.numel() for each in members if each.requires_grad)
        counts = [len(members), sum(each.numel() for each in members), trainable]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rows.append([str(group.get("name", number)), *counts, _options(group)])
    return "\n".join(aligned([*rows, ["total", *totals, ""]]))


def _options(group: Mapping[str, Any]) -> str:
    """The options of a group that are not None or False."""
    shown = {
        key: value
        for key, value in group.items()
        if key not in ("params", "name", "param_names")
        and value is not None
        and value is not False
        and not key.startswith("initial_")
    }
    return ", ".join(f"{key}={value!r}" for key, value in shown.items())


def _empty(pattern: Pattern, model: Module, named: Mapping[str, Parameter]) -> str:
    means = [name for name, each in model.named_parameters() if matches(pattern, name, each)]
    if not means:
        return (
            f"the pattern {spelled(pattern)!r} matches no parameter; there are "
            f"{few((repr(name) for name, _ in model.named_parameters()), 8)}"
        )
    if not any(name in named for name in means):
        return (
            f"all parameters that {spelled(pattern)!r} matches are frozen; drop the pattern, or "
            "pass frozen=True to include them because they are to be thawed later"
        )
    return (
        f"all parameters that {spelled(pattern)!r} matches are taken by patterns before it: "
        f"{few(map(repr, means), 8)}; put it first, or drop it"
    )


def matches(pattern: Pattern, name: str, parameter: Parameter) -> bool:
    r"""True if the pattern matches the whole name of the parameter.

    >>> matches("backbone.*", "backbone.0.weight", Parameter())
    True
    >>> matches(re.compile(r"layers\.[0-3]\..*"), "layers.5.bias", Parameter())
    False
    """
    if isinstance(pattern, str):
        return fnmatchcase(name, pattern)
    if isinstance(pattern, re.Pattern):
        return pattern.fullmatch(name) is not None
    return pattern(name, parameter)


def group_name(pattern: Pattern) -> str:
    r"""The name of a group of these parameters: `"backbone"` for `"backbone.*"`.

    A regular expression is named as the glob that is most like it.

    >>> group_name("backbone.*"), group_name("*.bias")
    ('backbone', '*.bias')
    >>> group_name(re.compile(r"layers\.\d+\.(?:q|v)_proj\..*"))
    'layers.*.(q|v)_proj'
    """
    if isinstance(pattern, re.Pattern):
        pattern = TOKEN.sub(lambda t: t[1] or t[2] or ("" if t[3] else "*"), pattern.pattern)
    if isinstance(pattern, str):
        return pattern.removesuffix(".*") or pattern
    return getattr(pattern, "__name__", type(pattern).__name__)


def spelled(pattern: Pattern) -> str:
    """The pattern as the user wrote it, for messages; a function's name."""
    return pattern if isinstance(pattern, str) else getattr(pattern, "pattern", group_name(pattern))


def norms_and_biases(name: str, parameter: Parameter) -> bool:
    """True for parameters of less than two dimensions: biases, and the weights of norms.

    They usually have no weight decay: `{norms_and_biases: {"weight_decay": 0.0}}`.
    """
    return parameter.ndim < 2
