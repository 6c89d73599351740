"""What is said of recordings: how many batches they served, and why one could not be made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
logger = logging.getLogger("camshaft")
ADVICE = (
    "compile='cuda-graphs' was recording this part of the step. While a device records, the host "
    "cannot read from it: leave out of the model and the loss what waits for the device, such as "
    "item(), float(), print(), a tensor in an `if`, nonzero(), a copy to or from the CPU, tensors "
    "made of numbers. Leave compile= out to see whether the step runs without it; "
    "compile={'mode': 'reduce-overhead'} lets torch find the parts that can be recorded"
)


class Told:
    """Counts the batches of an epoch that recordings served, and tells each thing once."""

    def __init__(self) -> None:
        """Begin to count."""
        self.recorded = self.replayed = self.plain = 0
        self._epochs = 0
        self._is_told = False

    def begin(self, state: Any) -> None:
        """Begin to count; the recordings of a run before are still there."""
        self.replayed = self.plain = self._epochs = 0
        self._is_told = False

    def tell(self, state: Any) -> None:
        """Say how many batches of this epoch were served, after the first and if they are few."""
        self._epochs += 1
        served, plain, self.replayed, self.plain = self.replayed, self.plain, 0, 0
        if self._epochs == 1:
            logger.info(
                "compile='cuda-graphs': %d recordings served %d batches of epoch %d; %d ran "
                "without, as each size of a batch does at first",
                *(self.recorded, served, state.epoch, plain),
            )
        elif self._epochs > 2 and plain > served and not self._is_told:
            self._is_told = True
            logger.warning(
                "compile='cuda-graphs': recordings served %d batches of epoch %d, and %d ran "
                "without: each size of a batch needs a recording of its own, and so does each "
                "value beside its tensors. Pad batches to a few lengths, or leave compile= out",
                *(served, state.epoch, plain),
            )


def explained_recording(record: Callable[[], Result]) -> Result:
    """Record, and let an error say what was recorded and what to do."""
    try:
        return record()
    except Exception as error:
        error.add_note(ADVICE)
        raise
