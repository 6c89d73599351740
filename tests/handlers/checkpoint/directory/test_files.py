"""What killed processes left, and shares of files: removed, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers.checkpoint.directory import remove_share, sweep_run


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    number = "0" * 32
    left = [f".tmp-iteration-0000000003-{number}", f".del-iteration-0000000003.2-{number}"]
    foreign = [".tmp-iteration-3", f".tmp-notes-{number}", ".git", "iteration-0000000003", "x.tmp"]
    for name in left + foreign:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / f".tmp-LATEST-{number}").touch()
    sweep_run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


NAMES = st.sets(st.from_regex(r"[a-z]{1,9}(-\d{5})?\.json", fullmatch=True), max_size=30)


@settings(max_examples=30)
@given(NAMES, st.integers(1, 9), st.randoms())
def test_shares_in_any_order_are_a_whole_and_the_last_one_removes_the_directory(
    tmp_path_factory, names, count, chance
):
    old = tmp_path_factory.mktemp("run") / "old"
    old.mkdir()
    for name in names:
        (old / name).touch()
    order = [*range(count)]
    chance.shuffle(order)
    for done, number in enumerate(order, 1):
        before = {path.name for path in old.iterdir()} if old.exists() else set()
        remove_share(old, number, count)
        left = {path.name for path in old.iterdir()} if old.exists() else set()
        assert left <= before
        assert done < count or not old.exists()


def test_what_a_rank_was_killed_in_removing_is_swept(tmp_path):
    old = tmp_path / f".del-iteration-0000000003-{'0' * 32}"
    old.mkdir()
    for number in range(20):
        (old / f"rank-{number:05d}.json").touch()
    remove_share(old, 0, 3)
    remove_share(old, 2, 3)
    assert 0 < len([*old.iterdir()]) < 20
    sweep_run(tmp_path)
    assert list(tmp_path.iterdir()) == []
