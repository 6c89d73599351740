"""Checksums of what a run consumed, by which a resumed run sees that it reads the same again."""

from __future__ import annotations

import logging
import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from gc import get_referents
from itertools import chain, islice
from operator import itemgetter
from typing import Any
from weakref import WeakSet
from zlib import crc32

from .. import ranks
from ..state import Position, capture_generators

logger: logging.Logger = logging.getLogger("camshaft")

NAMES = re.compile(r"^['\"b\d]|int(32|64) \[")
"""In lines about a batch: texts and whole numbers, which name samples. No augmentation of images or
sounds changes them."""
END: Any = object()
"""A sentinel for "no batch"."""

FIRST, EACH = 32, 256
"""The batches of a pass that are looked at: the first ones, and then one of so many."""
OF_LIST = "list of batches"
"""What a checksum of a list is of."""
WIDEST = 16
"""The most samples of a batch, or elements of a container, that are looked at."""
DEEPEST = 5
MOST = 100
"""The objects that an iterator holds among which a loader is looked for."""
WHOLE = 2**20
"""Up to so many bytes, a tensor of the first batch is looked at as a whole."""
LONGEST = 200
"""The most characters of a text."""
AHEAD = (
    "the {} reads batches ahead of the run, and they draw random numbers in this process, in turn "
    "with the training; a resume draws others for those that are ahead. Let workers draw them "
    "(num_workers=1), or make the generator of the data an attribute of it"
)
WITHIN = (
    "the {} begins a loader again within a pass, and its order is drawn in turn with the training, "
    "so that a resume is refused. Give that loader a generator of its own: DataLoader(..., "
    "generator=torch.Generator())"
)


class Trail:
    """A running checksum of the batches of a pass, taken before a step may change them.

    Between the batches that are looked at, the loop reads from the data itself.
    """

    def __init__(self) -> None:
        self.totals: dict[int, tuple[int, int]] = {0: (0, 0)}
        """By the number of the batch, the latest two checksums: of all, and of labels and texts."""
        self.first: int = 0
        """The checksum of the first batch."""
        self._begun = WeakSet[Any]()
        """The iterators of loaders that there were behind the first batch."""
        self._draws = False
        """True if random numbers were drawn as the second batch was read."""
        self._is_drawn_from = False
        """True if the training drew some with the first batch."""
        self._batches: Any = None

    def follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, of which some are looked at on their way."""
        self._batches = batches
        return chain.from_iterable(self._pieces(batches))

    def doubt(self, consumed: int) -> str | None:
        """What a resume behind the `consumed` batches would draw otherwise: `AHEAD` or `WITHIN`.

        A generator of a script, or an iterator, has the loaders from which it reads among what it
        holds.
        """
        for each in self._loaders() if consumed else ():
            read = each._num_yielded  # a wrapper may make each of its batches of several
            if self._draws and read > consumed and read % consumed:
                return AHEAD
            sampler = getattr(each, "_index_sampler", None)
            order = getattr(sampler, "sampler", sampler)
            is_drawn = getattr(order, "generator", self) is None
            if is_drawn and self._is_drawn_from and each not in self._begun:
                return WITHIN
        return None

    def _loaders(self) -> list[Any]:
        """The iterators of torch's loaders among what the batches come from."""
        left = [self._batches]
        for each in left:
            inner = get_referents(each) if len(left) < MOST else ()
            left += [e for e in inner if type(e) in (dict, tuple) or hasattr(type(e), "__next__")]
        return [each for each in left if hasattr(type(each), "_next_data")]

    def at(self, consumed: int) -> str:
        """The checksums of the first batch, and of the first `consumed` ones: see `totals`."""
        known = [number for number in self.totals if number <= consumed]
        return f"{self.first:08x}:" + (
            "{:08x}:{:08x}".format(*self.totals[known[-1]]) if known else ":"
        )

    def _pieces(self, batches: Iterator[Any]) -> Iterator[Any]:
        (number, (total, named)), behind_first = [*self.totals.items()][-1], None
        while True:
            is_first = number < FIRST
            step = 1 if is_first else EACH - number % EACH
            yield islice(batches, step - 1)
            rng = capture_generators() if number == 1 else None
            if (batch := next(batches, END)) is END:
                return
            if rng is not None:
                self._draws = capture_generators() != rng
                self._is_drawn_from = behind_first not in (None, rng)
            number, lines = number + step, [*text_lines(batch)]
            total = crc32("\n".join(lines).encode(), total)
            named = crc32("\n".join(filter(NAMES.search, lines)).encode(), named)
            self.totals = {**dict([*self.totals.items()][-1:]), number: (total, named)}
            if number == 1:
                self.first, self._begun = total, WeakSet(self._loaders())
                behind_first = capture_generators()
            yield (batch,)


def of_indices(indices: Any, total: int = 0) -> int:
    """Carry a checksum on over indices: the same one, whatever batches they come in."""
    if hasattr(indices, "tolist"):  # a tensor or an array
        indices = indices.tolist()
    some = indices if isinstance(indices, list | tuple) else [indices]
    try:
        return crc32(array("q", some), total)
    except (TypeError, ValueError, OverflowError):  # keys, pairs, tensors
        for each in some:
            total = checksum_of(each, total=total)
        return total


def of_first(indices: Any) -> int:
    """The checksum of the first index of a batch, or of one index alone."""
    return of_indices(indices[:1] if isinstance(indices, list) else indices)


def lines_of_list(batches: Any) -> list[list[str]]:
    """The batches of a list that are looked at, and its last one, as lines."""
    some = [*batches[:FIRST], *batches[FIRST::EACH], *batches[-1:]]
    return [[*text_lines(each)] for each in some]


def tensor_lines(lines: list[list[str]]) -> list[set[str]]:
    """Of each batch: the lines of its tensors and arrays."""
    return [{line for line in each if " [" in line} for each in lines]


ADVICE = (
    "If it counts its passes, or keeps something from one epoch to the next, give it "
    "set_epoch(epoch), which is called before each pass; or state_dict() and load_state_dict(), "
    "and name it in engine.objects. Make its own random generators attributes, before the run. "
    "Give a loader that is begun within a pass, as often as it ends, one by generator="
)


def check_same_again(source: Any, position: Position, consumed: int, epoch: int) -> None:
    """Refuse data that draw or give something else than what the run has consumed.

    Raises:
        ValueError: The checksum of the checkpoint is another one.
    """
    was, now = ((each or "::").split(":") for each in (position.mark, source.mark(consumed)))
    at = 1 if source.draws else 2  # what is drawn in turn with the training comes as no replay
    if was[0] != now[0] or "" in (was[at], now[at]) or was[at] == now[at]:
        # A sampler that draws each batch by itself keeps none, unless workers are ahead: what they
        # had asked for was drawn before steps that drew, too.
        kept = slice(2 if source.keeps else 3, None)
        is_alike = (was[0], len(was)) == (now[0], len(now)) and "" not in (was[2], now[2])
        if is_alike and was[kept] != now[kept] and (source.draws or not source.is_ahead_anew):
            logger.warning(
                "a resumed run may not be the same to the last bit: the %s draws random numbers as "
                "it is read, in turn with the training, and asked again draws others. If it keeps "
                "them for later batches, as an order or a shuffle buffer, or workers are ahead, "
                "samples come twice or never: give it a random generator of its own, as an "
                "attribute",
                _owner(source, was[0]),
            )
        return
    if was[0] == OF_LIST and not position.is_loaded:  # steps may have changed it in this process
        return
    said = (
        f"cannot carry on at batch {consumed + 1} of epoch {epoch}: asked again for what the run "
        f"has had of this epoch, the {_owner(source, was[0])} gives something else, so that "
        "samples would come twice or never"
    )
    if (doubts := source.doubts()) and source.doubt != WITHIN:
        logger.warning("%s, perhaps because %s", said, doubts[0])
        return
    raise ValueError(
        f"{said}. If the data have changed, pass those that the run was left with. {ADVICE}"
    )


def begins_otherwise(source: Any, position: Position) -> bool:
    """True if the pass, whose first batch was drawn again, has another one in this process."""
    was, now = ((each or "::").split(":") for each in (position.mark, source.mark(1)))
    at = 2 if was[0] == OF_LIST else 1
    return was[0] == now[0] and "" not in (was[at], now[at]) and was[at] != now[at]


def warn_of_other_beginning(source: Any, position: Position, epoch: int) -> None:
    """Warn that a pass that is over begins otherwise in this process: later ones may, too."""
    logger.warning(
        "a resumed run may not be the same to the last bit: begun again, epoch %d has another "
        "first batch, by the %s, and so may the epochs to come. If the data have changed, "
        "they have. %s",
        *(epoch, _owner(source, (position.mark or "").partition(":")[0]), ADVICE),
    )


def warn_of_no_beginning(error: Exception, epoch: int) -> None:
    """Warn that the first batch of a pass cannot be read again to be compared."""
    logger.warning(
        "a resumed run may not be the same to the last bit: the first batch of epoch %d cannot be "
        "read again, so that it is not known whether the data are as they were (%s: %s)",
        *(epoch, type(error).__name__, str(error).strip().rpartition("\n")[2]),
    )


def of_first_batch(source: Any, batch: Any) -> str:
    """A checksum of a batch's values, after what else decides them, as the batch size does."""
    dealing, rank = source.order.dealing(), f"{ranks.data_rank()} of {ranks.data_world_size()}"
    decides = f"{dealing.order} {dealing.batch} {source.sizes()} {rank}"
    values = "" if batch is END else f"{checksum_of(batch, WHOLE):08x}"
    return f"{crc32(decides.encode()):08x}:{values}"


def warn_of_other_samples(source: Any, position: Position, batch: Any, epoch: int) -> None:
    """Warn if the first batch of a pass has the same indices in this process, and other values."""
    if of_first_batch(source, batch) != position.first_batch:
        logger.warning(
            "a resumed run may not be the same to the last bit: read again, the first batch of "
            "epoch %d has the same indices and other values, so the samples of the data have "
            "changed. If they are numbered by the order of a set, such as labels or words, that is "
            "another one in each process: number them by sorted(...), or save the numbers. If they "
            "draw random numbers, workers draw others than the training: keep to either; and what "
            "numba, tokenizers or sentencepiece draw themselves is in no checkpoint: draw by "
            "torch, NumPy or Python. If you have changed the data or how it is transformed, the "
            "run goes on with that",
            epoch,
        )


def _owner(source: Any, of: str) -> str:
    """The class that gives the batches, or draws the indices."""
    owner = source.data if "batches" in of else getattr(source.order, "ones", source.data)
    return type(owner).__name__


def checksum_of(value: Any, whole: int = 0, total: int = 0) -> int:
    """A checksum of the lines about a value, carried on from `total`; see `text_lines`."""
    return crc32("\n".join(text_lines(value, 0, whole)).encode(), total)


def text_lines(value: Any, depth: int = 0, whole: int = 0) -> Iterator[str]:
    """Lines about a value that are the same in each process; a device is not waited for.

    Of a tensor or an array, one value of each of some samples is read; all, up to `whole` bytes. Of
    a path, its last name: each job may have the files in a folder of its own. Names in a dict come
    sorted: a script may take them from a set.

    >>> list(text_lines({"x": [1.5, "a"], "file": "/tmp/job-7/cat.png"}))
    ['dict 2', "'file'", "'cat.png'", "'x'", 'list 2', '1.5', "'a'"]
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        shown: Any = value
        if kind is str and shown.startswith("/"):
            shown = shown.rpartition("/")[2]
        yield repr(shown[:LONGEST] if kind in (str, bytes) else shown)
    elif hasattr(kind, "shape") and hasattr(kind, "dtype"):
        yield f"{kind.__qualname__} {_some_values(value, whole)}"
    elif depth == DEEPEST:
        yield kind.__qualname__
    elif isinstance(value, dict | list | tuple):
        yield f"{kind.__qualname__} {len(value)}"
        parts = chain.from_iterable(_by_name(value)) if isinstance(value, dict) else value
        for each in islice(parts, WIDEST):
            yield from text_lines(each, depth + 1, whole)
    else:  # the fields of a batch's own class; plain ones may be times, or numbers of objects
        yield kind.__qualname__
        for name, each in islice(sorted(getattr(value, "__dict__", {}).items()), WIDEST):
            if hasattr(type(each), "shape") or isinstance(each, dict | list | tuple):
                yield name
                yield from text_lines(each, depth + 1, whole)


def _by_name(value: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return (
        sorted(value.items(), key=itemgetter(0)) if {*map(type, value)} == {str} else value.items()
    )


def _some_values(value: Any, whole: int) -> Any:
    """A value of each of some samples, if reading them copies nothing and waits for no device."""
    seen = ""
    try:
        seen = f"{value.dtype} {[*value.shape]}"
        is_near = getattr(getattr(value, "device", None), "type", "cpu") == "cpu"
        is_plain = type(value).__module__.partition(".")[0] in ("torch", "numpy")
        if not (is_near and is_plain) or getattr(value.dtype, "hasobject", False):
            return seen
        if value.nbytes <= whole:
            return f"{seen} {crc32(_bytes_of(value)):08x}"
        while len(value.shape) > 1:
            value = value[:, value.shape[1] // 2]
        if len(value.shape) == 1:
            value = value[:: max(1, value.shape[0] // WIDEST)]
        return f"{seen} {value.tolist()}"
    except Exception:  # a nested, a sparse or an empty one, one without data, of other classes
        return seen


def _bytes_of(value: Any) -> Any:
    if hasattr(value, "tobytes"):  # an array
        return value.tobytes()
    return value.detach().contiguous().flatten().view(sys.modules["torch"].uint8).numpy()
