"""Patterns that choose parameters by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch.nn import Parameter

Pattern = str | re.Pattern[str] | Callable[[str, Parameter], bool]
"""A glob such as `"backbone.*"`, a compiled regular expression, or a function."""


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
    """The name of a group of these parameters: `"backbone"` for `"backbone.*"`.

    >>> group_name("backbone.*"), group_name("*.bias")
    ('backbone', '*.bias')
    """
    if isinstance(pattern, str):
        return pattern.removesuffix(".*") or pattern
    if isinstance(pattern, re.Pattern):
        return pattern.pattern
    return getattr(pattern, "__name__", type(pattern).__name__)


def norms_and_biases(name: str, parameter: Parameter) -> bool:
    """True for parameters of less than two dimensions: biases, and the weights of norms.

    They usually have no weight decay: `{norms_and_biases: {"weight_decay": 0.0}}`.
    """
    return parameter.ndim < 2


def known(names: Iterable[str]) -> str:
    """The first names, for a message."""
    listed = list(names)
    return ", ".join(map(repr, listed[:8])) + (", ..." if len(listed) > 8 else "")
