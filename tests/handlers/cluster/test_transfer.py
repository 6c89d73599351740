"""What one process gives to another arrives whole, or not at all."""

import pytest

from camshaft.handlers.cluster.transfer import Lost, Shelf, received_from, received_into

LARGE = bytes(range(256)) * 10_000  # several blocks


@pytest.fixture
def shelf():
    made = Shelf("127.0.0.1", 2.0)
    yield made
    made.close()


def test_bytes_and_files_arrive_by_their_names(shelf, tmp_path):
    (tmp_path / "file").write_bytes(LARGE)
    (tmp_path / "to").mkdir()
    shelf.offer(("run", 1), lambda: {"a": b"", "b": LARGE, "c": tmp_path / "file"})
    assert received_from(shelf.place, ("run", 1), 2.0) == {"a": b"", "b": LARGE, "c": LARGE}
    received_into(tmp_path / "to", shelf.place, ("run", 1), 2.0, ["c", "a"])
    assert {f.name: f.read_bytes() for f in (tmp_path / "to").iterdir()} == {"a": b"", "c": LARGE}


def test_what_is_not_there_or_is_another_one_is_lost(shelf, tmp_path):
    def fail():
        raise OSError

    shelf.offer(("run", 1), lambda: {"a": b"1"})
    for key, names in ((("run", 2), None), (("run", 1), ["b"])):
        with pytest.raises(Lost):
            received_from(shelf.place, key, 0.2, names)
    for make in (fail, lambda: {"a": tmp_path / "none"}):
        shelf.offer(("run", 1), make)
        with pytest.raises(Lost, match="did not give its run"):
            received_from(shelf.place, ("run", 1), 2.0)
