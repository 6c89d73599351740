"""Measures Camshaft on a GPU beside loops written by hand, in turns.

`make gpu` calls it; it writes docs/project/benchmarks.md. With `--device cpu --tiny` everything
runs, and the figures mean nothing.
"""

import argparse
import gc
import os
import platform
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import saves  # noqa: E402
import steps  # noqa: E402
import torch  # noqa: E402
from models import TINY, Sizes  # noqa: E402
from page import insert, table  # noqa: E402
from turns import Turns, spread, waits  # noqa: E402

PAGE = HERE.parents[2] / "docs" / "project" / "benchmarks.md"
Row = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it runs")
    parser.add_argument("--seconds", type=float, default=240, help="after which no case begins")
    parser.add_argument("--page", type=Path, help="the page to write into")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device, sizes = torch.device(options.device), TINY if options.tiny else Sizes()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.zeros(1, device=device)
    text = figures(sizes, device, time.monotonic() + options.seconds)
    print(text)
    if options.page:
        insert(options.page, text, "gpu")


def figures(sizes: Sizes, device: torch.device, end: float) -> str:
    """Both tables, as far as there was time."""
    rows: list[Row] = []
    with TemporaryDirectory() as directory:
        for case in steps.cases(sizes, device, Path(directory)):
            rows.append(_attempt(case, sizes, end))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
            _free(device)
        try:
            if time.monotonic() > end:
                raise TimeoutError("no time was left")
            costs = cost_of(saves.measured(sizes, device, Path(directory)))
        except Exception as error:
            costs = f"The save was not measured: {_said(error)}."
    head = (
        "",
        "raw, ms a step",
        "Camshaft (raw: 1)",
        "goal",
        "reached",
        "waits a step: raw",
        "Camshaft",
    )
    return "\n\n".join([how(device, sizes), table(head, rows), costs])


def _attempt(case: steps.Case, sizes: Sizes, end: float) -> Row:
    """The row of a case, or why there is none."""
    try:
        if time.monotonic() > end:
            raise TimeoutError("no time was left")
        return row_of(case, sizes, end)
    except Exception as error:
        return (case.name, "-", f"not measured: {_said(error)}", *("-",) * 4)


def row_of(case: steps.Case, sizes: Sizes, end: float) -> Row:
    """The figures of a case."""
    engine = case.engine()  # first: an option that is not there is said at once
    turns = Turns(case.batches, case.steps, case.raw(), case.device)

    @engine.on(steps.Events.EPOCH_COMPLETED(after=2))
    def look(state: Any) -> None:
        if time.monotonic() > end:
            state.stop("no time is left")

    engine.run(turns, max_epochs=sizes.turns)
    ratios = turns.ratios()
    del engine
    _free(case.device)
    count = min(case.steps, 50)
    of_raw = waits(steps.each(case.raw()), case.batches, count)
    again = case.engine()
    of_engine = waits(lambda data: again.run(data, max_epochs=1), case.batches, count)
    middle = sorted(ratios)[len(ratios) // 2]
    return (
        *(case.name, f"{1000 * turns.seconds():.3f}", spread(ratios)),
        "-" if case.most is None else f"{case.most:.3f}",
        "-" if case.most is None else ("yes" if middle <= case.most else "no"),
        *("-" if each is None else f"{each:.2f}" for each in (of_raw, of_engine)),
    )


def cost_of(save: saves.Save) -> str:
    """The table of the save."""
    head = ("", "training waits, s", "copy: 1", "until durable, s", "speed of a plain write")
    rows: list[Row] = [
        ("a plain copy into pinned memory", f"{save.copy:.3f}", "1.00", "-", "-"),
        ("a plain write and fsync", "-", "-", f"{save.write:.2f}", "100%"),
        (
            *("**Camshaft**", f"{save.waits:.3f}", f"{save.waits / save.copy:.2f}"),
            *(f"{save.durable:.2f}", f"{save.write / save.durable:.0%}"),
        ),
    ]
    return (
        f"A save of {save.bytes / 1e9:.2f} GB; the goal is that training waits at most for the "
        f"copy. The first one, which makes the pinned memory, takes {save.first:.2f} s.\n\n"
        f"{table(head, rows)}"
    )


def how(device: torch.device, sizes: Sizes) -> str:
    """Where and how the figures were taken."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return (
        f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, torch "
        f"{torch.__version__}; medians of {sizes.turns - 1} turns, the middle half in brackets."
    )


def _said(error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0].replace("|", "/")
    return f"{type(error).__name__}: {line[:120]}"


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
