"""The handlers of an engine as rows: who is called in which moment, and where it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..events import EventEnum, Events, Stage, Trigger
from ..signals import Signals, Subscription, label, source


class HandlerRow(NamedTuple):
    """One handler in one moment."""

    event: EventEnum
    stage: Stage
    handler: str
    trigger: Trigger
    source: str
    training: bool = True
    """False in an evaluation."""

    @property
    def moment(self) -> str:
        """The event, and whether it is one of an evaluation."""
        return f"{'' if self.training else 'evaluation, '}{self.event!r}"

    @property
    def when(self) -> str:
        """The conditions on this event: `"every=2"`, `"last"`, or `""` for each occurrence."""
        if not (clauses := self.trigger.clauses_on(self.event)):
            return "last"
        texts = sorted(repr(replace(clause, last=False)) for clause in clauses)
        return " | ".join(text.removeprefix(repr(self.event))[1:-1] for text in texts)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The stage, name, trigger and source of the handler."""
        return self.stage.name, self.handler, repr(self.trigger), self.source


def handler_rows(signals: Signals, training: bool) -> Iterator[HandlerRow]:
    """The handlers of an engine's signals, in the order of the events and of the calls."""
    own = [event for event in signals if not isinstance(event, Events)]
    for event in [*Events, *own]:
        if event not in signals:
            continue
        for each in signals[event].receivers_for(None):
            stage, trigger = Stage.ACT, Trigger.of(event)
            if isinstance(each, Subscription):
                stage, trigger = each.stage, each.trigger
            yield HandlerRow(event, stage, label(each), trigger, source(each), training)
