"""`camshaft report`: one file, or one line that says why not, and all that it says of a run."""

import builtins
import html
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines, best, latest
from camshaft.handlers.tools.report.facts.metric_files import MetricFiles
from camshaft.handlers.tools.report.facts.run_facts import RunDirectory, distinct, runs_in
from camshaft.handlers.tools.report.page import Page, asset, library


@pytest.fixture
def write(tmp_path):
    """Adds rows to a file of JSON lines in `run`."""

    def write_rows(*rows, name="rows.jsonl"):
        (tmp_path / "run").mkdir(exist_ok=True)
        with (tmp_path / "run" / name).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return tmp_path / "run"

    return write_rows


def run_in(directory, **metrics):
    directory.mkdir(exist_ok=True)
    (directory / "rows.jsonl").write_text(json.dumps({"iteration": 1, **metrics}) + "\n")
    return directory


def test_it_writes_one_page_about_one_run_or_several(camshaft, tmp_path):
    one, two = run_in(tmp_path / "one", loss=1), run_in(tmp_path / "two", loss=2)
    page = tmp_path / "page.html"
    code, printed, errors = camshaft("report", one, "-o", page)
    assert (code, errors) == (0, [])
    assert printed[0].startswith(f"{page}  ")
    assert "<title>one: Camshaft</title>" in page.read_text()
    assert camshaft("report", one, page, two, "--output", page)[0] == 0  # as of tmp_path/*
    assert "<title>one, two: Camshaft</title>" in page.read_text()


def test_a_page_about_checkpoints_alone_says_what_to_add(camshaft, save, tmp_path):
    save(1)
    assert camshaft("report", tmp_path / "run", "-o", tmp_path / "page.html")[0] == 0
    text = html.unescape((tmp_path / "page.html").read_text())
    for said in ("Add JSONLines(", "Add Journal(directory)", "iteration-0000000001"):
        assert said in text


def test_nothing_to_report_is_code_2_as_for_inspect_and_leaves_no_file(camshaft, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, why in (
        ("empty", "holds no rows, journal or checkpoints"),
        ("no", "is no directory"),
        ("file", "is no directory"),
    ):
        code, printed, errors = camshaft("report", tmp_path / name, "-o", tmp_path / "page.html")
        assert (code, printed) == (2, [])
        assert camshaft("inspect", tmp_path / name)[0] == code
        assert errors == [f"camshaft: {tmp_path / name} {why}"]
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_a_big_run_makes_a_small_page_without_torch(processes, tmp_path):
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "rows.jsonl").open("w") as file:
        for iteration in range(30_000):
            row = {f"metric_{name}": iteration % (7 + name) for name in range(10)}
            file.write(json.dumps({"iteration": iteration, **row}) + "\n")
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "assert main(['report', 'run']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    processes.run(script, cwd=tmp_path, fresh=True)
    text = (tmp_path / "report.html").read_text()
    assert "30,000 rows, drawn as" in text
    assert len(text) - len(library()) < 1_000_000


class Scripts(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.scripts, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


def page_of(write, *rows, name="run", **options):
    run = RunDirectory(write(*rows or [{"iteration": 1, "loss": 1}]), name)
    run.look()
    return Page([run.facts()], **options).html()


def news(runs):
    """What a page shows of runs that have been looked at."""
    return Page([run.facts() for run in runs]).news()


def test_the_policy_lets_nothing_run_but_the_two_scripts_and_nothing_be_asked(write):
    for live in (False, True):
        parsed = Scripts(page_of(write, is_live=live))
        (policy,) = (
            attrs["content"]
            for tag, attrs in parsed.tags
            if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert policy.count("sha256-") == 2
        assert policy.endswith("base-uri 'none'; form-action 'none'")
        assert "unsafe-eval" not in policy
        assert ("connect-src 'self'" in policy) == live


def test_the_templates_put_in_nothing_unescaped_but_the_style_and_the_scripts():
    text = asset("page.html") + asset("pieces.html")
    assert re.findall(r"\S+ \| safe", text) == ["style | safe", "library | safe", "code | safe"]
    assert "autoescape" not in text
    assert not re.search(r"=\{\{|=\{%", re.sub(r"\{%.*?%\}", "", text))  # attributes have quotes


def test_without_plotly_the_error_names_what_to_install(write, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "camshaft\[report\]"'):
        page_of(write)


def train(directory, config=None):
    def step(state, batch):
        state.metrics["loss"] = 1 / state.iteration

    engine = Engine(step).add(
        Checkpoint(directory, keep=latest(1) | best(1, "loss", mode="max"), resume=True),
        Journal(directory, config=config),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    engine.run([1, 2, 3], max_epochs=3)


def test_it_holds_rows_parts_checkpoints_configuration_environment_and_handlers(tmp_path):
    train(tmp_path, {"model": {"width": 8}})
    run = RunDirectory(tmp_path, "here")
    assert run.look()
    assert not run.look()
    facts = run.facts()
    assert facts.curves["loss"]["count"] == 9
    assert [part.end for part in facts.parts] == ["completed"]
    assert facts.limits["max_epochs"] == 3
    kept = [(each.saved.manifest.iteration, facts.claims.text(each)) for each in facts.checkpoints]
    assert kept == [(3, "best"), (9, "latest")]
    assert {each.problem for each in facts.checkpoints} == {None}
    assert facts.config == {"model.width": "8"}
    assert facts.environment["python"]
    assert "Checkpoint.save" in [row[2] for row in facts.handlers]


def test_a_directory_that_is_not_there_is_empty_and_seen_when_it_comes(tmp_path):
    run = RunDirectory(tmp_path / "later", "later")
    run.look()
    assert not run.facts().is_begun
    assert not run.look()
    train(tmp_path / "later")
    assert run.look()
    assert run.facts().is_begun


def test_hostile_journals_are_no_error(write):
    run = write({"event": "started", "config": 3, "limits": [], "environment": None, "handlers": 7})
    line = {"event": "resumed", "epoch": "x", "part": 2, "limits": {"max_epochs": "y"}}
    write({**line, "config": {"a": float("inf"), "b": [1]}, "handlers": [[1]]})
    (run / "journal.jsonl").write_text((run / "rows.jsonl").read_text())
    facts = RunDirectory(run, "x").facts()
    assert (facts.config, facts.handlers) == ({"a": "inf", "b": "[1]"}, [])
    assert "2 parts" in news(runs_in([run]))["sections"]["head"]


def head_of(tmp_path, *lines, rows=()):
    """The head of a page about a run with these lines in its journal, as text."""
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "journal.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in lines))
    (tmp_path / "run" / "rows.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in rows))
    runs = runs_in([tmp_path / "run"])
    runs[0].look()
    shown = news(runs)
    text = re.sub("<[^>]*>", "", shown["sections"]["head"]).strip()
    return html.unescape(text), shown["status"]


LIMITS = {"limits": {"max_iterations": 400}, "config": {}}
STARTED = {"event": "started", "time": 100, "iteration": 0, **LIMITS}


def test_the_head_says_first_whether_the_run_ended_and_why(tmp_path):
    error = "RuntimeError: out of memory\n  on device 0"
    failed = {"event": "failed", "time": 160, "iteration": 100, "epoch": 2, "reason": error}
    text, status = head_of(tmp_path, STARTED, failed)
    assert text.startswith("failed · epoch 2 · 100 iterations · 1 min 0 s")
    assert error in text
    assert status == {"text": "failed", "is_over": True}
    completed = failed | {"event": "completed", "reason": "max_epochs"}
    text, status = head_of(tmp_path, STARTED, completed)
    assert text.startswith("finished (max_epochs) · epoch 2")
    assert status == {"text": "finished", "is_over": True}


def test_the_head_of_a_run_that_goes_on_says_how_long_it_will_take(tmp_path):
    environment = {"environment": {"host": "far"}}
    line = {"event": "running", "time": time.time(), "iteration": 100}
    text, status = head_of(tmp_path, STARTED | environment | {"time": line["time"] - 60}, line)
    assert text.startswith("running · epoch 0 · 100 iterations · 1 min 0 s")
    assert "25%, about 3 minutes left" in text
    assert status == {"text": "running", "is_over": False}
    text, status = head_of(tmp_path, STARTED | environment | {"time": 0}, line | {"time": 60})
    assert status["text"].startswith("no word for ")


def test_several_runs_are_compared_in_one_table_with_what_differs(write, tmp_path):
    directories = []
    for number, (name, config) in enumerate({"a": 0.1, "b": 1 / 3, "c": 0.1}.items()):
        rows = [row(1, **{"val/accuracy": 0.5 + number / 10, "val/loss": 0.25, "note": 7})]
        directories.append(write(*rows).rename(tmp_path / name))
        end = {"event": "completed", "time": 110, "iteration": 1, "part": 0}
        told = {"config": {"lr": config, "seed": 0, "directory": f"runs/{name}"}, "part": 0}
        lines = "".join(f"{json.dumps(each)}\n" for each in (STARTED | told, end))
        (tmp_path / name / "journal.jsonl").write_text(lines)
    runs = runs_in(directories)
    for each in runs:
        each.look()
    shown = news(runs)
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", shown["sections"]["head"])
    table = [[re.sub("<.*?>", "", cell) for cell in cells[at : at + 7]] for at in range(0, 28, 7)]
    assert table == [
        ["run", "state", "val/loss, lowest", "val/accuracy, highest", "lr", "iterations", "time"],
        ["a", "finished", "0.25", "0.5", "0.1", "1", "10 s"],
        ["b", "finished", "0.25", "0.6", "0.3333", "1", "10 s"],
        ["c", "finished", "0.25", "0.7", "0.1", "1", "10 s"],
    ]
    assert re.findall(r'class="best">(.*?)<', shown["sections"]["head"]) == ["0.7"]
    assert shown["status"] == {"text": "finished", "is_over": True}
    best = re.sub("<.*?>", " ", shown["sections"]["best"])
    assert best.count("all 3 runs") == 1  # the loss of the evaluation is equal in all
    legend = re.sub("<.*?>", " ", shown["sections"]["legend"]).split()
    assert legend == ["a", "b", "c"]


def test_runs_are_named_by_the_shortest_ends_of_their_paths_that_differ(tmp_path):
    assert distinct([Path("/home/me/runs/a")]) == ["a"]
    assert distinct([Path("/x/runs/a"), Path("/x/runs/b")]) == ["a", "b"]
    assert distinct([Path("/x/1/run"), Path("/x/2/run")]) == ["1/run", "2/run"]
    assert distinct([Path("/x/a"), Path("/x/a")]) == ["a", "a"]


def row(iteration, **metrics):
    return {"iteration": iteration, "step": iteration, "epoch": 1, **metrics}


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(write):
    run = write(row(1, loss=1))
    rows = MetricFiles(run)
    with (run / "rows.jsonl").open("a") as file:
        file.write('{"iteration": 2, "lo')
        file.flush()
        rows.look()
        assert list(rows.series["loss"].values) == [1.0]
        file.write('ss": 7}\n')
    rows.look()
    assert list(rows.series["loss"].values) == [1.0, 7.0]


def test_a_file_that_was_cut_in_place_and_has_grown_beyond_is_read_anew(write):
    run = write(row(1, loss=1), row(2, loss=2), row(3, loss=3))
    rows = MetricFiles(run)
    rows.look()
    with (run / "rows.jsonl").open("r+b") as file:
        file.truncate(len(file.readline()))
    write(row(2, loss=5), row(3, loss=6), row(4, loss=7))
    assert rows.look()
    assert list(rows.series["loss"].values) == [1.0, 5.0, 6.0, 7.0]


def test_what_is_no_row_or_no_number_is_left_out(write):
    run = write([1], {"loss": 1}, row("x", loss=1), row(None, loss=2), row(1, a=True, b="text"))
    clocks = {"time": 3.5, "GanEvents.CRITIC_UPDATED": 7}
    write(
        row(2, a=[1], b=None, c={"d": 1}, d=1, **clocks),
        "NaN",
        {"iteration": 3, "epoch": [], "d": 2},
    )
    with (run / "rows.jsonl").open("ab") as file:
        file.write(b"\xff\n{}\n" + b"[" * 100_000 + b"\n")
    rows = MetricFiles(run)
    assert rows.look()
    found = {name: list(series.values) for name, series in rows.series.items()}
    assert found == {"d": [1.0]}


def test_several_files_are_read_and_the_journal_is_none_of_them(write):
    run = write(row(1, loss=1))
    write(row(1, loss=9, other=2), name="z.jsonl")
    write(row(1, event=3), name="journal.jsonl")
    write(row(1, old=3), name="rows.jsonl.1")
    rows = MetricFiles(run)
    rows.look()
    found = {name: list(each.values) for name, each in rows.series.items()}
    assert found == {"loss": [1], "other": [2]}
