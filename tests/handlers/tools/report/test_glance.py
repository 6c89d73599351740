"""A table of runs reads one metric of each; it says what a reading of all rows says."""

import json
import math
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers.tools.report import charts, glance, summary
from camshaft.handlers.tools.report.facts import RunDirectory

NAMES = [
    "loss",
    "val/loss",
    "lr",
    "val/acc",
    'a"val/loss',
    "é",
    "\\",
    "GanEvents.CRITIC_UPDATED",
    "time",
]
NUMBERS = st.floats(width=32) | st.integers(-(10**40), 10**40) | st.sampled_from([0.0, -0.0, 1e-7])
NESTED = {"loss": -1e9, "val/loss": -1e9}
OTHERS = ["text", None, True, NESTED, [NESTED], {"text": ', "val/loss": 1}\n'}]
OTHERS += [{"counts": [1, 2], "edges": [0, 1, 2]}, {"text": "long " * 2000}, "Infinity"]
ODD = [b"", b"{}", b"[1]", b'{"iteration": 1', b"\xff", b'{"iteration": 7, "loss": 01}', b"nan"]
ODD += [b'{"iteration": 7, "loss": -1.2.3}', b'{"iteration": 7, "epoch": -1, "loss": -99}']
ODD += [b'{"iteration": 7, "val/loss": -9, "val/loss": -8}', b'{"loss": -88, "iteration": 7}']
ODD += [
    b'{"iteration": 7, "loss": -3}\r',
    b'{"iteration": 7, "loss": NaN}',
    b'{"iteration":7,"lr":1}',
]


def row_of(iteration, values):
    plain = {
        name: value
        if not isinstance(value, float) or math.isfinite(value)
        else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        for name, value in values.items()
    }
    return json.dumps({"iteration": iteration, "step": iteration, "epoch": 1} | plain).encode()


@st.composite
def lines_of_rows(draw):
    """Rows in the order of their iterations, and lines of other kinds, each with how often."""
    shapes = draw(st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=4))
    lines, iteration = [], 0
    for _ in range(draw(st.integers(1, 12))):
        iteration += draw(st.integers(0, 3))
        kind = draw(st.integers(0, 9))
        if kind == 0:
            lines.append((draw(st.sampled_from(ODD)).replace(b"7", str(iteration).encode()), 1))
            continue
        values = NUMBERS if kind < 8 else NUMBERS | st.sampled_from(OTHERS)
        row = {name: draw(values) for name in draw(st.sampled_from(shapes))}
        lines.append((row_of(iteration, row), draw(st.sampled_from([1, 1, 1, 40, 300]))))
    return lines


def plain(directory):
    """The key result and the clocks by a reading of all rows."""
    run = RunDirectory(directory, "run")
    run.look()
    facts = run.facts()
    for name in summary.key_metrics(charts.charts_of(facts.curves)):
        which = summary.best_extreme(name)
        if point := facts.curves[name][which]:
            return facts, (name, which, point["value"])
    return facts, None


@settings(max_examples=50, deadline=None)
@given(files=st.lists(lines_of_rows(), min_size=1, max_size=2), torn=st.sampled_from([b"", *ODD]))
def test_a_glance_says_what_a_reading_of_all_rows_says(tmp_path_factory, files, torn):
    directory = tmp_path_factory.mktemp("run")
    for number, lines in enumerate(files):
        text = b"".join((line + b"\n") * count for line, count in lines)
        (directory / f"{number}.jsonl").write_bytes(text + torn)
    (facts, result), (expected, best) = glance(directory, "run"), plain(directory)
    assert repr(result) == repr(best)  # a zero has a sign
    assert [*facts.curves] == [*expected.curves]
    assert facts.is_begun == expected.is_begun
    last = [{name: each[-1] for name, each in run.clocks.items()} for run in (facts, expected)]
    assert last[0] == last[1]


def test_rows_of_numbers_are_read_by_no_call_each(tmp_path):
    rows = (row_of(each, {"loss": 1 / each, "lr": 0.1}) + b"\n" for each in range(1, 20_001))
    (tmp_path / "rows.jsonl").write_bytes(b"".join(rows))
    glance(tmp_path, "run")  # imports what it needs
    calls = list[str]()
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        _, result = glance(tmp_path, "run")
    finally:
        sys.setprofile(None)
    assert result == ("loss", "lowest", 1 / 20_000)
    assert calls.count("call") < 20_000
