"""Figures of many turns as the tables that stand in the docs."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from compare import RAW, Turns, each, own, ratio, spread, typical, without_loading

Row = tuple[str, ...]

OURS = "camshaft_engine"
NAMES = {
    RAW: "raw loop",
    OURS: "**Camshaft**",
    "ignite_engine": "pytorch-ignite",
    "lightning_trainer": "Lightning",
    "accelerate_loop": "accelerate",
}
PACKAGES = ("torch", "pytorch-ignite", "lightning", "accelerate", "tensorboardX", "tqdm")
HANDLERS = (1, 10, 100)


def figures(turns: Turns, rounds: int) -> str:
    """Everything that was measured, as Markdown."""
    subjects = [name for name in NAMES if name in turns[0]]
    parts = [how(turns, rounds)]
    if OURS in subjects:
        parts.append("### Goals\n\n" + goals(turns))
    empty = [name for name in subjects if "0 firing" in turns[0][name]]
    parts.append("### An empty iteration, in µs\n\n" + iterations(turns, empty))
    parts.append("### What one handler adds to it, in µs\n\n" + handlers(turns, empty))
    parts.append("### A training step and the import\n\n" + steps(turns, subjects))
    return "\n\n".join(parts)


def insert(path: Path, text: str, name: str = "figures") -> None:
    """Put figures between the two markers that the page has for them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def beside(here: str, path: Path, name: str = "figures") -> str:
    """The tables with the figures of the page in brackets, where the page has other ones."""
    known = dict(_cells(path.read_text(encoding="utf-8").partition(f"<!-- {name}: begin -->")[2]))
    lines = []
    for line, key in zip(here.splitlines(), (key for key, _ in _cells(here)), strict=True):
        there = known.get(key, [])
        cells = [each.strip() for each in line.strip("|").split("|")]
        if len(there) == len(cells) > 1 and not set(line) <= {*"|-: "}:
            pairs = zip(cells, there, strict=True)
            both = [own if own == other else f"{own} ({other})" for own, other in pairs]
            lines.append(f"| {' | '.join(both)} |")
        else:
            lines.append(line)
    return "\n".join(lines)


def _cells(text: str) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Of each line: its heading and first cell, and all of its cells."""
    heading = ""
    for line in text.splitlines():
        heading = line if line.startswith("#") else heading
        cells = [each.strip() for each in line.strip("|").split("|")] if line[:1] == "|" else []
        yield (heading, cells[0] if cells else line), cells


def versions(*packages: str) -> str:
    """The packages that are installed, with their versions."""
    found = {each.name: each.version for each in distributions() if each.name in packages}
    return ", ".join(f"{name} {found[name]}" for name in packages if name in found)


def how(turns: Turns, rounds: int) -> str:
    """Where and how the figures were taken."""
    plain = typical(turns, RAW, own("plain"))
    loading = typical(turns, RAW, own("loading")) / typical(turns, RAW, own("pairs"))
    frugal = typical(turns, RAW, own("frugal")) / plain
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), one thread, "
        f"Python {platform.python_version()}, {versions(*PACKAGES)}; {rounds} rounds.\n\n"
        f"The raw loop's step takes {plain:.0f} µs here; of one with a custom data set, "
        f"{loading:.0%} is loading. A raw loop that sets `grad` to None by itself takes "
        f"{frugal:.2f} of it."
    )


def goals(turns: Turns) -> str:
    """Each goal, the figure beside it, and whether it is reached."""
    firing, idle = (each(max(HANDLERS), kind) for kind in ("firing", "idle"))
    found = [
        ("empty iteration, µs", 0.5, own("0 firing")),
        ("a handler that fires, µs", 0.15, firing),
        ("a handler that does not fire, µs", 0.0, idle),
        ("step, data in memory (raw: 1)", 0.65, ratio("plain")),
        ("step, custom data set (raw: 1)", 1.01, ratio("pairs")),
        ("everything on, data in memory (raw: 1)", 0.75, ratio("everything")),
        ("`import camshaft`, s", 0.1, own("import camshaft")),
    ]
    rows: list[Row] = []
    for name, most, of in found:
        figure = round(typical(turns, OURS, of), 2) + 0.0  # no minus before a zero
        rows.append((name, f"{most:.2f}", f"{figure:.2f}", "yes" if figure <= most else "no"))
    return table(("", "at most", "figure", "reached"), rows)


def iterations(turns: Turns, subjects: list[str]) -> str:
    """An iteration by number of handlers."""
    keys = ["0 firing", *(f"{n} {kind}" for kind in ("firing", "idle") for n in HANDLERS)]
    return table(
        ("", "no handler", *keys[1:]),
        [(NAMES[s], *(f"{typical(turns, s, own(key)):.2f}" for key in keys)) for s in subjects],
    )


def handlers(turns: Turns, subjects: list[str]) -> str:
    """What is more than without handlers, by handler."""
    cases = [(n, kind) for kind in ("firing", "idle") for n in HANDLERS]
    return table(
        ("", *(f"{n} {kind}" for n, kind in cases)),
        [(NAMES[s], *(f"{typical(turns, s, each(*c)):.3f}" for c in cases)) for s in subjects],
    )


def steps(turns: Turns, subjects: list[str]) -> str:
    """Training as ratios to the raw loop of the same turn, and CPU seconds of the import."""
    rows: list[Row] = []
    for subject in subjects:
        imports = [key for key in turns[0][subject] if key.startswith("import")]
        seconds = [f"{typical(turns, subject, own(key)):.2f}" for key in imports]
        ratios = [spread(turns, subject, ratio(key)) for key in ("plain", "pairs", "everything")]
        computing = f"{typical(turns, subject, without_loading):.2f}"
        row = (ratios[0], ratios[1], computing, ratios[2], " / ".join(seconds) or "-")
        rows.append((NAMES[subject], *row))
    steps = ("step, data in memory (raw: 1)", "custom data set", "without loading")
    head = ("", *steps, "everything on (raw: 1)", "import, s")
    return table(head, rows)


def table(head: Row, rows: list[Row]) -> str:
    """A Markdown table with numbers to the right."""
    rule = ("---", *["--:"] * (len(head) - 1))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
