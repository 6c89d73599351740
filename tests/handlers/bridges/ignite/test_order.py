"""The bridge announces what ignite's own engine announces, whatever handlers ask for."""

import random
import warnings

import ignite.engine
import pytest
from ignite.engine import Events

from camshaft.handlers.bridges.ignite import Engine

CALLS = ("terminate", "terminate_epoch", "interrupt", "raise", "set_data", "more", "batch")
CALLS += ("limit", "length", "metric")
ALL = [event for event in Events if event is not Events.EXCEPTION_RAISED]
MOST = 300
"""Of events: with max_iters and data that end, ignite's epochs without batches have no end."""


class Once:
    """Data that can be read once."""

    def __init__(self, length):
        self.left = list(range(length))

    def __iter__(self):
        while self.left:
            yield self.left.pop(0)


def scenario(seed):
    """Random data, limits and orders; the same whenever it is made from this seed."""
    rng = random.Random(seed)
    length = rng.choice([1, 3, 5])
    kind = rng.choice(["list", "list", "once", "generator", "nothing", "unknown"])
    limits = {"max_iters": rng.randint(1, 12)} if rng.random() < 0.3 else {}
    if not limits:
        limits = {"max_epochs": rng.randint(1, 4)}
    if kind == "nothing" or rng.random() < 0.3:
        limits["epoch_length"] = rng.randint(1, 6)
    orders = [
        (rng.choice(ALL), rng.randint(1, 6), rng.choice(CALLS), rng.random() < 0.3)
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    return kind, length, limits, orders, rng.random() < 0.5, rng.choice([1, 2, 3])


def data_of(kind, length):
    return {
        "list": list(range(length)),
        "once": Once(length),
        "generator": (number for number in range(length)),
        "nothing": None,
        "unknown": type("Unknown", (), {"__iter__": lambda self: iter(range(length))})(),
    }[kind]


def follow(make, seed):
    """Everything that the handlers of an engine see, in several runs."""
    kind, length, limits, orders, handles, runs = scenario(seed)
    seen, counts = [], {}

    def process(engine, batch):
        seen.append(("process", batch))
        return batch

    engine = make(process)

    def look(engine, event, *args, **kwargs):
        state = engine.state
        if len(seen) > MOST:
            raise KeyboardInterrupt
        place = (state.epoch, state.iteration, state.batch, state.output, dict(state.metrics))
        seen.append((event.name, *place, engine.last_event_name))
        counts[event] = counts.get(event, 0) + 1
        for when, number, call, flag in orders:
            if when is event and counts[event] == number:
                obey(engine, call, flag)

    def obey(engine, call, flag):
        seen.append(call)
        if call == "raise":
            raise LookupError("by order")
        if call == "set_data" and kind != "nothing":
            engine.set_data([100, 101, 102])
        elif call == "more":
            engine.state.max_epochs = (engine.state.max_epochs or 0) + 1
        elif call == "batch":
            engine.state.batch = -1
        elif call == "limit":
            engine.state.max_iters = engine.state.iteration + 2
        elif call == "length":
            engine.state.epoch_length = (engine.state.epoch_length or 0) + 2
        elif call == "metric":
            engine.state.metrics["seen"] = engine.state.output
        elif call == "interrupt":
            engine.interrupt()
        elif call.startswith("terminate"):
            getattr(engine, call)(flag)

    for event in ALL:
        if event is Events.TERMINATE_SINGLE_EPOCH:
            engine.add_event_handler(event, lambda engine, iter_counter: seen.append(iter_counter))
        else:
            engine.add_event_handler(event, look, event)
    if handles:
        engine.add_event_handler(
            Events.EXCEPTION_RAISED, lambda engine, e: seen.append(type(e).__name__)
        )
    data = data_of(kind, length)
    for number in range(runs):
        given = limits if number == 0 else {}
        try:
            state = engine.run(data, **given)
            seen.append(None if state is None else (state.epoch, state.iteration, state.max_epochs))
        except (Exception, KeyboardInterrupt) as error:
            seen.append(type(error).__name__)
        seen.append((engine.should_terminate, engine._dataloader_iter is None))
    engine._event_handlers.clear()  # an interrupted run of ignite's would fire when it is deleted
    return seen


IN_EPOCH = (23, 387, 784)
"""Scenarios with a limit inside of an epoch, which a handler moves in its last iteration."""
PARTS = [
    (*range(12), *IN_EPOCH),
    pytest.param(range(12, 400), marks=pytest.mark.slow),
    pytest.param(range(400, 1500), marks=pytest.mark.soak),
]


@pytest.mark.parametrize("part", PARTS)
def test_events_come_as_in_ignites_own_engine_whatever_handlers_ask(part):
    """Random orders to end, to interrupt or to raise, in any event, and runs that follow."""
    for seed in part:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = follow(ignite.engine.Engine, seed)
            found = follow(Engine, seed)
        assert found == expected, f"scenario {seed}: {scenario(seed)}"
