"""How many graphs torch.compile has made, epoch by epoch."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("camshaft")


class Graphs:
    """Tells the number of graphs after the first epoch, and of batches that need ever more."""

    def __init__(self) -> None:
        """Begin to count."""
        self._before = 0
        self._epochs = 0
        self._late = 0

    def begin(self, state: Any) -> None:
        """Note the graphs that others have made."""
        self._before = number_of_graphs()
        self._epochs = self._late = 0

    def tell(self, state: Any) -> None:
        """Say how many graphs this epoch has made, if it has made any."""
        now = number_of_graphs()
        more, self._before = now - self._before, now
        self._epochs += 1
        if more <= 0:
            return
        if self._epochs == 1:
            logger.info("compile=: torch has made %d graphs in epoch %d", more, state.epoch)
            return
        self._late += 1
        if self._late == 2:
            logger.warning(
                "compile=: torch has made %d more graphs in epoch %d: each size of a batch is "
                "compiled by itself. Pad batches to a few lengths, or make one graph for all sizes "
                "by compile={'dynamic': True}; TORCH_LOGS=recompiles says why each was made",
                *(more, state.epoch),
            )


def number_of_graphs() -> int:
    """The graphs that torch has made in this process."""
    from torch._dynamo.utils import counters  # takes a second to import

    return int(counters["stats"]["unique_graphs"])
