"""Numbers near the end of their range, and lines that are right and rich: a page is still made."""

import json
import shutil

import pytest

from camshaft.handlers.files import budget
from camshaft.handlers.tools.report import facts, page

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
HUGE = [-1e308, 1e308, 10**300, 5e-324, 1e18]
START = {"event": "started", "part": "a", "time": 1, "iteration": 0, "step": 0, "epoch": 0}


def served(run):
    """What `camshaft watch` gives a browser."""
    runs = facts.runs_in([run])
    for each in runs:
        each.look()
    shown = page.Page(
        [each.facts() for each in runs], lambda picture: str(picture.size), is_live=True
    )
    return json.loads(json.dumps(shown.news(), allow_nan=False))


def write(path, lines):
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


@pytest.mark.parametrize("key", ["time", "iteration", "epoch", "step"])
def test_a_page_is_made_of_a_journal_with_any_numbers(tmp_path, key):
    for first in HUGE:
        for then in HUGE:
            later = {"event": "running", "part": "a", "time": 99, "iteration": 7} | {key: then}
            lines = [START | {key: first}, later, later | {"event": "saving", "iteration": 9}]
            write(tmp_path / "journal.jsonl", lines)
            assert served(tmp_path)["status"]["text"] == "killed"


@pytest.mark.parametrize("edges", [[-1.7e308, 0, 1.7e308], [-1e308, -1e308, 1e308]])
def test_a_histogram_whose_range_is_infinite_is_left_out(tmp_path, edges):
    usual = {"counts": [1, 2], "edges": [0, 1, 2]}
    odd = {"counts": [1, 2], "edges": edges}
    write(tmp_path / "rows.jsonl", [{"iteration": 1, "loss": 1, "odd": odd, "usual": usual}])
    charts = served(tmp_path)["sections"]["charts"]
    assert ("usual" in charts, "odd" in charts) == (True, False)


def test_a_histogram_of_very_many_ranges_is_told_of_and_left_out(tmp_path):
    many = budget.MOST_RANGES + 1
    wide = {"counts": [1] * many, "edges": [*range(many + 1)]}
    usual = {"counts": [1] * (many - 1), "edges": [*range(many)]}
    write(tmp_path / "rows.jsonl", [{"iteration": 1, "wide": wide, "usual": usual}])
    (run,) = facts.runs_in([tmp_path])
    run.look()
    found = run.facts()
    assert [*found.histograms] == ["usual"]
    assert found.notes == [f"shown: histograms of at most {budget.MOST_RANGES} ranges"]


@pytest.mark.slow
@pytest.mark.parametrize("event", ["saving", "running"])
def test_lines_of_a_journal_that_hold_very_much_are_not_all_kept(tmp_path, hostile, event):
    rich = {"event": event, "part": "a", "more": [str(n) for n in range(200_000)]}
    write(tmp_path / "journal.jsonl", [START, *[rich] * 15])
    given = ["report", str(tmp_path), "-o", str(tmp_path / "page.html")]
    assert hostile.in_child(lambda: hostile.measured(lambda: hostile.main(given))) is None
    assert "values in its events" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_page_of_very_many_long_names_is_no_hundred_megabytes(tmp_path, hostile):
    names = [f"{'&' * (budget.LONGEST_NAME - 10)}{n:04d} loss" for n in range(budget.MOST_SHOWN)]
    write(tmp_path / "rows.jsonl", [{"iteration": 1} | dict.fromkeys(names, 1)])
    given = ["report", str(tmp_path), "-o", str(tmp_path / "page.html")]
    assert hostile.in_child(lambda: hostile.measured(lambda: hostile.main(given))) is None
    assert (tmp_path / "page.html").stat().st_size < 50 * 2**20


def test_a_quote_in_a_table_does_not_make_many_lines_one_row(honest, hostile, tmp_path):
    run = shutil.copytree(honest, tmp_path / "run")
    columns = (run / "rows.csv").read_text().splitlines()[0].count(",")
    with (run / "rows.csv").open("a") as file:
        file.write('3,0,1,"\n"' + "," * (columns - 3) + "\n")
    with pytest.raises(ValueError, match=r"line 7 of .*rows\.csv is no row"):
        hostile.train(run, until=5, resume=True)
