"""How many batches data and epochs have, and whether a resumed run finds as many as before."""

from __future__ import annotations

from collections.abc import Mapping


def length_of(data: object) -> int | None:
    """The number of batches, or None if the data does not know it."""
    try:
        return len(data)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def length_of_epoch(length: int | None, epoch_length: int | None, most: int | None) -> int | None:
    """The number of batches of an epoch over data of this length, or None if it is unknown."""
    if epoch_length is not None:
        return epoch_length
    return None if length is None else shortest(length, most)


def shortest(*lengths: int | None) -> int | None:
    """The smallest of these lengths; None means no limit."""
    return min((each for each in lengths if each is not None), default=None)


def check_length(found: int, consumed: int) -> None:
    """Refuse data that ends before the position of the run."""
    if found < consumed:
        raise ValueError(
            f"cannot carry on at batch {consumed + 1} of the epoch: the data ended before "
            "that. Pass the data that the run was left with"
        )


def check_sizes(was: Mapping[str, int], now: Mapping[str, int], epoch: int) -> None:
    """Refuse data of other sizes than those that the epoch began with."""
    changed = [
        f"{name} {size} -> {now.get(name)}" for name, size in was.items() if now.get(name) != size
    ]
    if changed:
        raise ValueError(
            f"cannot carry on in the middle of epoch {epoch} with other data: "
            f"{', '.join(changed)}. Pass the data that the run was left with; between two "
            "epochs it may change"
        )
