"""Names that do not exist: the name that was meant, also if other libraries call it so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def unknown(owner: str, name: str, known: Iterable[str], words: Mapping[str, str]) -> Exception:
    """The error for an attribute that does not exist, with the one that was probably meant.

    Args:
        owner: What was asked for the attribute.
        name: The attribute.
        known: The attributes that exist.
        words: What to write here, by the words of other libraries.

    >>> unknown("Events", "EPOCH_COMPLETE", ["EPOCH_COMPLETED", "SAVING"], {})
    AttributeError("Events has no attribute 'EPOCH_COMPLETE'; did you mean 'EPOCH_COMPLETED'?")
    >>> unknown("an Engine", "fit", ["run"], {"fit": "engine.run(loader, max_epochs=...)"})
    AttributeError("an Engine has no attribute 'fit'; write engine.run(loader, max_epochs=...)")
    """
    given = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):  # libraries look for such names, and handle the error themselves
        return AttributeError(given, name=name, obj=None)
    if name in words:
        advice = f"; write {words[name]}"
    else:
        from difflib import get_close_matches  # not on the way of every import

        shown = {each.lower(): each for each in known if not each.startswith("_")}
        found = get_close_matches(name.lower(), shown, n=1, cutoff=0.7)
        advice = f"; did you mean {shown[found[0]]!r}?" if found else ""
    # Without obj=..., Python itself would add a second suggestion.
    return AttributeError(given + advice, name=name, obj=None)
