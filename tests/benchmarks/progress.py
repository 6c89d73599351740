"""What the progress bar costs at 1000 iterations a second: `python tests/benchmarks/progress.py`.

Its cost has two parts, a look at the clock in each iteration and a drawing each half second. Both
are taken as CPU time, the smallest of several runs; the terminal is one in memory.
"""

import io
import time

from camshaft import Engine
from camshaft.handlers import ProgressBar

COUNT, RUNS = 20_000, 7
DRAWINGS_A_SECOND, ITERATIONS_A_SECOND = 2, 1000


class Terminal(io.StringIO):
    def isatty(self):
        return True


def process(state, batch):
    state.metrics["loss"] = 0.5


def cpu_seconds(count, **arguments):
    """The CPU time of an iteration, the smallest of several runs, and how often was drawn."""

    def once():
        file = Terminal()
        handlers = [ProgressBar(file=file, **arguments)] if arguments else []
        began = time.thread_time()
        Engine(process, *handlers).run(range(count), max_epochs=1)
        return (time.thread_time() - began) / count, file.getvalue().count("\r")

    return min(once() for _ in range(RUNS))


def main():
    """Print the share of a second that the bar takes."""
    without, _ = cpu_seconds(COUNT)
    look, _ = cpu_seconds(COUNT, interval=1e9)
    drawing, drawn = cpu_seconds(COUNT // 20, interval=1e-9)
    assert drawn >= COUNT // 20
    share = (look - without) * ITERATIONS_A_SECOND + (drawing - without) * DRAWINGS_A_SECOND
    print(f"a look {1e6 * (look - without):.2f} µs, a drawing {1e6 * (drawing - without):.0f} µs")
    print(f"at {ITERATIONS_A_SECOND} iterations a second: {share:.3%} of the time")


if __name__ == "__main__":
    main()
