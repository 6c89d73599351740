"""Epochs that are timed and take turns with those of other processes."""

import sys
from time import process_time

TURN = "turn"
"""What a process says that can wait."""


class Laps:
    """The CPU time of each epoch: the data calls `begin` whenever it begins again."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.ended: list[float] = []

    def begin(self) -> None:
        """End the epoch before, let the other subjects run theirs, begin one."""
        if self.began:
            self.ended.append(process_time())
        await_turn()
        self.began.append(process_time())

    def seconds(self, epochs: int) -> list[float]:
        """Of each epoch but the first, which warms up; what ends the run counts."""
        self.ended.append(process_time())
        assert len(self.began) == epochs, f"{epochs} epochs, but {len(self.began)} began"
        return [end - begin for begin, end in zip(self.began, self.ended, strict=True)][1:]


def await_turn() -> None:
    """Tell the runner that this process can wait, and wait; without a runner, go on."""
    print(TURN, file=sys.__stdout__, flush=True)
    sys.stdin.readline()
