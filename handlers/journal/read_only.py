"""A configuration that a run cannot change."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: ReadOnly, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the configuration of a run is read-only, since it says how the run was begun; change "
        "a copy of it: dict(config)"
    )


_REFUSE: Any = _refuse  # for all ways of changing a dict, whatever their types


class ReadOnly(dict[str, Any]):
    """A dict that cannot be changed, made of such dicts, of tuples and of plain values.

    Copies, also those by `copy`, `deepcopy` and `pickle`, are dicts that can be changed.

    >>> config = ReadOnly.of({"model": {"sizes": [8, 8]}})
    >>> config
    {'model': {'sizes': (8, 8)}}
    >>> config["model"]["width"] = 9
    Traceback (most recent call last):
    ...
    TypeError: the configuration of a run is read-only, since it says how the run was begun; change\
 a copy of it: dict(config)
    """

    @classmethod
    def of(cls, value: Any) -> Any:
        """The same plain value, read-only."""
        if isinstance(value, dict):
            items: dict[str, Any] = value
            return cls({key: cls.of(each) for key, each in items.items()})
        if isinstance(value, list):
            elements: list[Any] = value
            return tuple(cls.of(each) for each in elements)
        return value

    __setitem__ = __delitem__ = __ior__ = update = setdefault = _REFUSE
    pop = popitem = clear = _REFUSE

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
