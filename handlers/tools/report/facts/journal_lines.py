"""The lines of a journal, and what stands for many things that come one after another."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from ....files import budget, record_of, regular, values_in, whole_lines

Item = TypeVar("Item")


class Records(list[dict[str, Any]]):
    """The lines of a journal."""

    problem = ""
    """Why it could not be read, or not to its end."""


def read_journal(path: Path) -> Records:
    """The lines of a journal, without lines that are torn or something else.

    Of many signs of life of one process some are left out; a journal may tell of a year.

    >>> read_journal(Path("there/is/no/journal.jsonl"))
    []
    """
    processes: dict[str, ProcessLines] = {}
    values, problem = 0, ""
    try:
        with regular(path) as file:
            for number, line in enumerate(whole_lines(file)):
                record = record_of(line)
                if record is None or not isinstance(record.get("event"), str):
                    continue
                process = processes.setdefault(str(record.get("part")), ProcessLines())
                if process.add(number, record) or values_in(line) > budget.ORDINARY:
                    values += max(values_in(line), budget.ORDINARY)
                if values > budget.MOST_IN_EVENTS:
                    raise ValueError(f"has more than {budget.MOST_IN_EVENTS} values in its events")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except ValueError as error:
        problem = f"{path.name} {error}; shown: what comes before"
    except OSError as error:
        problem = f"{path.name} cannot be read: {error.strerror or error}"
    kept = [each for process in processes.values() for each in process.numbered]
    records = Records(record for _, record in sorted(kept, key=itemgetter(0)))
    records.problem = problem
    return records


class ProcessLines:
    """The lines of one process, with their numbers in the journal."""

    def __init__(self) -> None:
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._signs = Thinned[tuple[int, dict[str, Any]]](budget.MOST_KEPT)

    def add(self, number: int, record: dict[str, Any]) -> bool:
        """Add a line; False for a sign of life, which may be left out later."""
        is_event = record["event"] != "running" or not self._events
        (self._events.append if is_event else self._signs.add)((number, record))
        return is_event

    @property
    def numbered(self) -> list[tuple[int, dict[str, Any]]]:
        """The lines that are kept."""
        return [*self._events, *self._signs]


class Thinned(list[Item]):
    """Of all items that were added, the first, the newest, and some at even distances between.

    >>> kept = Thinned(4)
    >>> for number in range(1000):
    ...     kept.add(number)
    >>> kept, kept.seen
    ([0, 256, 512, 768, 999], 1000)
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        """An even number; one more is kept for the newest."""
        self.seen: int = 0
        self._distance, self._newest_is_extra = 1, False

    def add(self, item: Item) -> None:
        """Add the newest item."""
        if self._newest_is_extra:
            self.pop()
        self.append(item)
        self._newest_is_extra = self.seen % self._distance != 0
        self.seen += 1
        if len(self) > self.most and not self._newest_is_extra:
            del self[1::2]
            self._distance *= 2
