"""JSON within limits, so that reading a hostile file costs little."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from .budget import DEEPEST, LARGEST_TEXT, LONGEST, MOST

BEYOND = 10**LONGEST
TOO_LONG = f"has an integer of more than {LONGEST} digits, which is out of range"


def text_of(tree: Any) -> str:
    """A tree of plain values as JSON.

    Raises:
        ValueError: The text is beyond a limit, so `tree_of` would not read it.
    """
    try:
        text = json.dumps(tree, allow_nan=False)
        _refuse_much(text.encode("ascii"))
        _refuse_odd(tree)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the plain values of this run cannot be saved as JSON: it {error}; keep large "
            "histories of handlers in tensors"
        ) from error
    return text


def tree_of(text: bytes) -> Any:
    """The tree that `text_of` was given.

    Raises:
        ValueError: The text is not JSON, is beyond a limit, or `text_of` never writes it.
    """
    _refuse_much(text)
    try:
        tree = json.loads(
            text.decode("ascii"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
        )
        _refuse_odd(tree)
    except RecursionError:
        raise ValueError(f"nests more than {DEEPEST} values") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text ({error})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error})") from None
    except ValueError as error:
        if "integer string conversion" in str(error):  # Python's own limit is `LONGEST`
            raise ValueError(TOO_LONG) from None
        raise
    return tree


def _refuse_much(text: bytes) -> None:
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"has {len(text)} bytes, and at most {LARGEST_TEXT} are taken")
    count = sum(map(text.count, (b",", b"[", b"{")))
    if count > MOST:
        raise ValueError(f"has about {count} values, and at most {MOST} are taken")


def _refuse_odd(tree: Any) -> None:
    """Refuse numbers that are too large, and a tree that is too deep."""
    level = [tree]
    for _ in range(DEEPEST):
        inside = list[Any]()
        for each in level:
            if isinstance(each, dict):
                inside += each.values()
            elif isinstance(each, list):
                inside += each
            elif type(each) is int and not -BEYOND < each < BEYOND:
                raise ValueError(TOO_LONG)
            elif type(each) is float and not math.isfinite(each):
                raise ValueError(f"has the number {each}, which is out of range")
        level = inside
        if not level:
            return
    raise ValueError(f"nests more than {DEEPEST} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"has the key {twice!r} twice in one object")
    return made


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"has the number {text}, which is not JSON")
