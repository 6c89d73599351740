"""Columns and numbers: a row is always a line."""

from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.common import aligned, readable_size, show

ROWS = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**7)), min_size=1)


@given(ROWS)
def test_columns_begin_and_end_at_the_same_place(rows):
    lines = aligned(rows)
    assert len({len(line) for line in lines}) == 1
    for line, (text, number) in zip(lines, rows, strict=True):
        assert line.startswith(text)
        assert line.endswith(f"  {number:,}") or line.endswith(f" {number:,}")


def test_what_is_not_printable_is_shown_as_what_it_is(capsys):
    show(["save\nme \x1b[31m now", "größe"])
    assert capsys.readouterr().out == "save\\nme \\x1b[31m now\ngröße\n"


def test_sizes_are_in_units_that_people_read():
    sizes = [0, 999, 1000, 12_345_678, 5 * 10**9, 7 * 10**12]
    assert list(map(readable_size, sizes)) == [
        *("0 B", "999 B", "1.0 kB", "12.3 MB", "5.0 GB", "7000.0 GB"),
    ]
