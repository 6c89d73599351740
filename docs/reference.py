"""The pages of the API reference: every public name of Camshaft, by its docstring.

What is public stands in the packages' `__all__`. A page is a subject: the packages or the rooms of
a package whose names it shows, so a new name of a room needs no line here.
"""

import inspect
from pathlib import Path
from pkgutil import resolve_name

from camshaft.engine.late import LINE

DOCS = Path(__file__).parent
PACKAGES = ("camshaft", "camshaft.handlers")
"""The packages from which scripts import, and whose names are spread over pages by their rooms."""

SUBJECTS = {
    "engine": ("Engine, supervised, State, Events, Update", "engine engine.update"),
    "supervised": ("Batches, outputs and devices", "engine.supervised"),
    "data": ("Data and modules", "engine.data.loaders engine.modules"),
    "ranks": ("Ranks", "engine.ranks"),
    "saving": (
        "Checkpoints and stops",
        "checkpoint checkpoint.format.retention bridges.dcp preemption",
    ),
    "clusters": (
        "Object stores, replicas and Ray",
        "cluster.elsewhere cluster.local cluster.mirror cluster.replicas bridges.ray",
    ),
    "evaluation": ("Evaluation", "validate early_stopping restore_best outputs"),
    "metrics": ("Metrics", "metrics"),
    "logs": (
        "Loggers, progress, journal and report",
        "loggers bridges.trackers console_lines progress_bar journal "
        "tools.prove handlers.tools.report",
    ),
    "measurements": ("Measurements", "measurements profile time_handlers"),
    "schedules": ("Schedules of learning rates", "schedules"),
    "steps": ("Gradients: clipping and norms", "gradients"),
    "averages": ("Averages of weights", "averages"),
    "fine-tuning": ("Fine-tuning", "fine_tuning"),
    "guards": ("Guards, replay, steering", "guards tools.replay tools.steering"),
    "search": ("Search and configs", "tools.search bridges.optuna tools.configs"),
    "come-over": ("From ignite and Lightning", "bridges.ignite bridges.lightning"),
}
"""The title of each page, and the rooms whose public names it shows, in the order of the menu."""

WHOLE = {
    "ranks": "camshaft.ranks",
    "schedules": "camshaft.handlers.schedules",
    "logs": "camshaft.handlers.loggers",
}
"""Packages that scripts import names from too, by the page that shows all of them."""

IGNITE, LIGHTNING = "camshaft.handlers.bridges.ignite", "camshaft.handlers.bridges.lightning"
NAMED = {
    "engine": [
        *("camshaft.Engine", "camshaft.supervised", "camshaft.State"),
        *("camshaft.Events", "camshaft.Update"),
    ],
    "come-over": [
        *(f"{IGNITE}.Engine", f"{IGNITE}.create_supervised_trainer"),
        f"{IGNITE}.create_supervised_evaluator",
        *(f"{LIGHTNING}.from_lightning", f"{LIGHTNING}.LightningEvents"),
    ],
}
"""Names that come first, in the order of reading, or whose rooms hold others that are not shown."""


def names_of_rooms(package: str) -> dict[str, list[str]]:
    """The public names of a package by the room from which its stub imports them."""
    stub = Path(str(resolve_name(package).__file__)).with_suffix(".pyi")
    rooms: dict[str, list[str]] = {}
    for home, name in LINE.findall(stub.read_text(encoding="utf-8")):
        rooms.setdefault(home.lstrip("."), []).append(name)
    return rooms


def public_names() -> dict[str, list[str]]:
    """The full public names that each page shows."""
    rooms: dict[str, list[str]] = {}
    for package in PACKAGES:
        for room, names in names_of_rooms(package).items():
            rooms.setdefault(room, []).extend(f"{package}.{name}" for name in names)
    rooms["engine"].remove("camshaft.ranks")
    pages, placed = {}, {name for names in NAMED.values() for name in names}
    for page, (_, shown) in SUBJECTS.items():
        names = [name for room in shown.split() for name in rooms.pop(room, [])]
        if package := WHOLE.get(page):
            known = {name.rpartition(".")[2] for name in names}
            inside = resolve_name(package).__all__
            names += [f"{package}.{name}" for name in inside if name not in known]
        pages[page] = NAMED.get(page, []) + [name for name in names if name not in placed]
    if rooms:
        raise SystemExit(f"SUBJECTS in docs/reference.py names no page for {sorted(rooms)}.")
    return pages


def summary(name: str) -> str:
    """The first line of the docstring of what a full name means."""
    return (inspect.getdoc(resolve_name(name)) or "").partition("\n")[0]


def reference_pages() -> dict[str, str]:
    """The Markdown of each page by its name."""
    pages, index = {}, [(DOCS / "reference" / "index.md").read_text()]
    for page, names in public_names().items():
        title = SUBJECTS[page][0]
        index += [f"## [{title}]({page}.md)", "", "| name | what it is |", "|---|---|"]
        index += [f"| [`{n.rpartition('.')[2]}`]({page}.md#{n}) | {summary(n)} |" for n in names]
        index.append("")
        pages[f"{page}.md"] = "\n\n".join([f"# {title}", *(f"::: {name}" for name in names), ""])
    return {"index.md": "\n".join(index), **pages}
