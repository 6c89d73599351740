"""What an iteration costs on ignite's loop and on the bridge, in turns: microseconds, the median.

The process function does nothing, so that only the loop and the calls of handlers count.
"""

from statistics import median
from time import perf_counter

import ignite.engine
from ignite.engine import Events

from camshaft.handlers.bridges import ignite as bridge

ITERATIONS, TURNS = 20_000, 15
HANDLERS = {
    "no handlers": [],
    "4 handlers, one of them every=10": [
        *(Events.ITERATION_STARTED, Events.ITERATION_COMPLETED),
        *(Events.ITERATION_COMPLETED(every=10), Events.EPOCH_COMPLETED),
    ],
    "10 handlers every=100": [Events.ITERATION_COMPLETED(every=100)] * 10,
}


def microseconds(engines, events):
    """The time of an iteration of one run."""
    engine = engines.Engine(lambda engine, batch: None)
    for event in events:
        engine.add_event_handler(event, lambda engine: None)
    began = perf_counter()
    engine.run(range(ITERATIONS), max_epochs=1)
    return (perf_counter() - began) / ITERATIONS * 1e6


if __name__ == "__main__":
    for name, events in HANDLERS.items():
        turns = [
            [microseconds(engines, events) for engines in (ignite.engine, bridge)]
            for _ in range(TURNS)
        ]
        theirs, ours = map(median, zip(*turns, strict=True))
        print(f"{name}: ignite {theirs:.2f} us, here {ours:.2f} us, {ours / theirs:.0%}")
