"""Token sequences of unlike length, put together into rows of one length."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from .samplers import token_lengths

IGNORED = -100
"""A label that the losses of torch and of Hugging Face leave out."""
INTEGERS = {
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32),
}
FIELDS = {"input_ids", "labels", "attention_mask"}


class Packed(Dataset[dict[str, Tensor]]):
    """A data set of rows: whole token sequences, one behind the other, with hardly any padding.

    A row has `input_ids`; `position_ids`, which begin anew in each sequence; `document_ids`, the
    number of the sequence in the row; and `labels`. The first label of each sequence is -100, so
    that with labels that are shifted by one no token predicts one of another sequence. What is
    left of a row is filled: with labels of -100, and -1 as its document.

    Rows are made once, by the lengths alone: each window of samples is put into rows by itself,
    the longest first, and each into the fullest row that has room. A loader shuffles rows.

    >>> rows = Packed([[5, 6, 7], [8, 9, 8, 9], [3, 2]], max_tokens=6)
    >>> rows[0]["input_ids"], rows[0]["labels"]
    (tensor([8, 9, 8, 9, 3, 2]), tensor([-100,    9,    8,    9, -100,    2]))
    >>> rows[1]["document_ids"]
    tensor([ 0,  0,  0, -1, -1, -1])
    """

    def __init__(
        self,
        dataset: Dataset[Any] | Sequence[Any],
        *,
        max_tokens: int,
        lengths: Iterable[int] | None = None,
        window: int = 1000,
        fill: int = 0,
    ) -> None:
        """Decide which samples come into which row.

        Args:
            dataset: Samples by index: each a sequence of token ids, or a mapping with `input_ids`
                and perhaps `labels`, as long, such as -100 where nothing is to be learned.
            max_tokens: The length of a row.
            lengths: Of each sample; by default all samples are read once.
            window: Samples that are put into rows together: more of them leave less to fill, fewer
                keep neighbours together.
            fill: The token that fills what is left of a row.

        Raises:
            TypeError: The data set has no indices or no length, or a sample is not of token ids.
            ValueError: A sample is empty or longer than a row, or there is none.
        """
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                f"Packed() reads samples by their indices, and a {type(dataset).__name__} has no "
                "indices or no length: give a Dataset with __getitem__ and __len__, or a list"
            )
        if type(window) is not int or window < 1:
            raise ValueError(f"Packed(window={window!r}): needs a number of samples, from 1")
        if type(fill) is not int:
            raise TypeError(f"Packed(fill={fill!r}): needs the id of a token, as 0")
        self.dataset: Dataset[Any] | Sequence[Any] = dataset
        self.max_tokens: int = max_tokens
        self.window: int = window
        self.fill: int = fill
        count = len(cast("Sized", dataset))
        if lengths is None:
            lengths = (len(self._tokens(index)[0]) for index in range(count))
        self.lengths: Tensor = token_lengths("Packed", lengths, max_tokens)
        if len(self.lengths) != count:
            raise ValueError(
                f"Packed() got {len(self.lengths)} lengths for {count} samples: give one "
                "for each, in the order of the data set"
            )
        rows = [row for part in self._windows() for row in _rows(part, self.lengths, max_tokens)]
        # Tensors, since workers that are forked copy the memory of lists, page by page.
        self._order = torch.tensor([index for row in rows for index in row])
        self._ends = torch.tensor([len(row) for row in rows]).cumsum(0)

    def __repr__(self) -> str:
        """What decides on the rows, beside the data; a position in them holds for no others."""
        return f"Packed(max_tokens={self.max_tokens}, window={self.window})"

    def __len__(self) -> int:
        return len(self._ends)

    def samples(self, row: int) -> list[int]:
        """The indices of the samples in a row, in their order."""
        row = range(len(self))[row]
        begin = int(self._ends[row - 1]) if row else 0
        return self._order[begin : int(self._ends[row])].tolist()

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        ids, positions = torch.full((self.max_tokens,), self.fill), torch.arange(self.max_tokens)
        labels, documents = torch.full_like(ids, IGNORED), torch.full_like(ids, -1)
        begin = 0
        for number, index in enumerate(self.samples(row)):
            own, own_labels = self._tokens(index)
            if len(own) != self.lengths[index]:
                raise ValueError(
                    f"sample {index} has {len(own)} tokens, and had {int(self.lengths[index])} "
                    "when Packed() decided on the rows: give data that stays the same, or its "
                    "right lengths"
                )
            end = begin + len(own)
            ids[begin:end], documents[begin:end] = own, number
            labels[begin + 1 : end] = own_labels[1:]
            positions[end:] -= len(own)
            begin = end
        return {
            "input_ids": ids,
            "position_ids": positions,
            "document_ids": documents,
            "labels": labels,
        }

    def _windows(self) -> Iterator[range]:
        count = len(self.lengths)
        for begin in range(0, count, self.window):
            yield range(begin, min(begin + self.window, count))

    def _tokens(self, index: int) -> tuple[Tensor, Tensor]:
        """The token ids of a sample, and its labels."""
        sample = self.dataset[index]
        if not isinstance(sample, Mapping):
            ids = _integers(sample, index)
            return ids, ids
        mask, unknown = sample.get("attention_mask"), [*sample.keys() - FIELDS]
        if "input_ids" not in sample or unknown:
            found = f"with {unknown[0]!r}" if "input_ids" in sample else "without 'input_ids'"
            raise TypeError(
                f"Packed() got a sample {found} (sample {index}); it puts 'input_ids' and "
                "'labels' together: leave others out of the data set"
            )
        ids = _integers(sample["input_ids"], index)
        if mask is not None and not (torch.as_tensor(mask) == 1).all():
            raise ValueError(
                f"sample {index} is padded, by its attention_mask: give Packed() samples without "
                "padding"
            )
        labels = ids if sample.get("labels") is None else _integers(sample["labels"], index)
        if len(labels) != len(ids):
            raise ValueError(
                f"sample {index} has {len(ids)} input_ids and {len(labels)} labels: give Packed() "
                "a label for each token, -100 where there is none; it does not shift them"
            )
        return ids, labels


def _integers(tokens: Any, index: int) -> Tensor:
    """Token ids, or labels, as one tensor."""
    try:
        if isinstance(tokens, list | tuple) and isinstance(next(iter(tokens), None), Tensor):
            raise TypeError("torch joins some tensors, as if they were numbers")
        found = torch.as_tensor(tokens, dtype=None if len(tokens) else torch.int64)
    except (TypeError, ValueError, RuntimeError):
        found = None
    is_whole = found is not None and found.ndim == 1 and found.dtype in INTEGERS
    if found is None or not is_whole:
        what = type(tokens).__name__ if found is None else f"{found.dtype}{[*found.shape]}"
        raise TypeError(
            f"Packed() got a {what} as sample {index}: it needs a sequence of token ids, which "
            "are whole numbers, or a mapping with such 'input_ids', and perhaps 'labels'"
        )
    return found.long()


def _rows(part: range, lengths: Tensor, max_tokens: int) -> list[list[int]]:
    """The samples of each row of a window: the longest first, into the fullest that has room."""
    size = dict(zip(part, lengths[part.start : part.stop].tolist(), strict=True))
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    """The room in each row that has some, and the row's number, in order."""
    for index in sorted(part, key=size.__getitem__, reverse=True):
        at = bisect_left(rooms, (size[index], 0))
        room, number = rooms.pop(at) if at < len(rooms) else (max_tokens, len(rows))
        if number == len(rows):
            rows.append([])
        rows[number].append(index)
        if room > size[index]:
            insort(rooms, (room - size[index], number))
    return [sorted(row) for row in rows]
