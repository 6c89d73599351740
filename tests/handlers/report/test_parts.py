"""The parts of a run by the lines of its journal."""

from camshaft.handlers.report.parts import pace, parts_of


def line(time, event, iteration=0, part="a", **more):
    return {"time": time, "part": part, "event": event, "iteration": iteration, **more}


def test_each_part_ends_as_its_last_line_says():
    records = [
        *(line(0, "started"), line(5, "saving", 50, reason="why"), line(9, "running", 90)),
        *(line(20, "resumed", 50, "b"), line(30, "interrupted", 99, "b", reason="SIGTERM")),
        *(line(40, "resumed", 99, "c"), line(50, "completed", 200, "c", reason="max_epochs")),
        line(50.1, "saving", 200, "c", reason="last"),
        *(line(60, "started", 0, "d"), line(61, "failed", 3, "d", reason="OSError: full")),
    ]
    found = parts_of(records, is_alive=False)
    assert [
        (part.first["event"], part.first["iteration"], part.end, part.last["iteration"])
        for part in found
    ] == [
        ("started", 0, "killed", 90),
        ("resumed", 50, "interrupted", 99),
        ("resumed", 99, "completed", 200),
        ("started", 0, "failed", 3),
    ]
    assert [part.reason for part in found] == ["", "SIGTERM", "max_epochs", "OSError: full"]
    assert [(save["time"], save["iteration"]) for save in found[0].saves] == [(5, 50)]


def test_only_the_newest_part_without_an_end_can_be_alive():
    records = [line(0, "started"), line(10, "resumed", 5, "b")]
    assert [part.end for part in parts_of(records, is_alive=True)] == ["killed", "running"]
    assert [part.end for part in parts_of(records, is_alive=False)] == ["killed", "killed"]
    done = [*records, line(11, "completed", 9, "b")]
    assert [part.end for part in parts_of(done, is_alive=False)] == ["killed", "completed"]


def test_a_clock_that_was_set_back_changes_no_order():
    records = [line(100, "started"), line(20, "resumed", 5, "b"), line(30, "running", 9, "b")]
    assert [part.end for part in parts_of(records, is_alive=True)] == ["killed", "running"]


def test_what_is_no_number_counts_as_0():
    records = [line(float("nan"), "started", float("inf")), line(1e999, "running", True)]
    [part] = parts_of(records, is_alive=False)
    clocks = ("time", "iteration")
    assert [line[clock] for line in (part.first, part.last) for clock in clocks] == [0, 0, 0, 0]
    assert pace(parts_of(records, is_alive=False)) == ([], [])


def test_lines_of_two_writers_are_told_apart():
    records = [line(0, "started"), line(1, "failed", 0, "b"), line(2, "completed", 8)]
    assert [part.end for part in parts_of(records, is_alive=False)] == ["completed", "failed"]


def test_the_pace_is_taken_over_a_second_at_least_and_follows_the_last_resume():
    records = [
        *(line(0, "started"), line(0.5, "running", 10), line(2, "running", 40)),
        line(4, "running", 50),
        *(line(10, "resumed", 40, "b"), line(11, "running", 50, "b"), line(12, "saving", 50, "b")),
    ]
    assert pace(parts_of(records, is_alive=False)) == ([40, 50], [20.0, 10.0])


def test_lines_without_times_or_clocks_are_no_error():
    records = [{"event": "started"}, {"event": "completed", "time": "late", "iteration": None}]
    (part,) = parts_of(records, is_alive=True)
    assert part.last["iteration"] == 0
    assert pace([part]) == ([], [])
