"""Names in a directory: there at once or not at all."""

import pytest

from camshaft.handlers.files import appearing, make_directory


def test_a_directory_appears_whole(tmp_path):
    with appearing(tmp_path / "place") as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("content")
        assert not (tmp_path / "place").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    assert (tmp_path / "place/file").read_text() == "content"


def test_a_file_replaces_the_one_before(tmp_path):
    for text in ("first", "second"):
        with appearing(tmp_path / "LATEST") as temporary:
            temporary.write_text(text)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("LATEST", "second")]


def half_written(place, error):
    with appearing(place) as temporary:
        temporary.mkdir()
        (temporary / "file").touch()
        raise error


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_after_an_error_nothing_is_left(tmp_path, error):
    (tmp_path / "other").touch()
    with pytest.raises(type(error)):
        half_written(tmp_path / "place", error)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_directories_are_made_with_their_parents(tmp_path):
    make_directory(tmp_path / "a/b/c")
    make_directory(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").is_dir()
