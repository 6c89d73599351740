"""Small files that ask for much: each is refused, or shown in part with a word about it."""

import hashlib
import json
import os
import shutil
import zlib
from collections import Counter
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch

from camshaft.handlers.checkpoint import BrokenCheckpoint, checkpoints, weights_at
from camshaft.handlers.checkpoint.directory import tree_in, verify_files
from camshaft.handlers.checkpoint.format import Manifest, decode
from camshaft.handlers.common import Image, aligned
from camshaft.handlers.files import budget, whole_lines
from camshaft.handlers.journal import is_written
from camshaft.handlers.tools.checkpoints import look
from camshaft.handlers.tools.report import read_journal
from camshaft.handlers.tools.report.facts import runs_in
from camshaft.handlers.tools.report.facts.run_facts import by_path

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
NEWEST = "iteration-0000000004"


@pytest.fixture
def run(honest, tmp_path):
    return shutil.copytree(honest, tmp_path / "run")


def shown(run):
    """What a page is told of a run, and its notes."""
    (each,) = runs_in([run])
    each.look()
    return each.facts()


def test_a_manifest_has_no_sets_and_no_keys_but_text():
    for value in ({"!set": [1]}, {"!dict": [[1, 2]]}, {"!counter": []}, [{"!tuple": []}]):
        body = json.loads(Manifest(metrics={"!loss": 1.0}).to_json()) | {"metrics": value}
        del body["sha256"]
        digest = json.dumps(body, sort_keys=True).encode()
        text = json.dumps(body | {"sha256": hashlib.sha256(digest).hexdigest()})
        with pytest.raises(ValueError, match=r"it is no manifest"):
            Manifest.of_json(text)
    assert Manifest.of_json(Manifest(metrics={"!loss": 1.0}).to_json()).metrics == {"!loss": 1.0}


def test_a_tensor_is_one_owner_s():
    reads = []

    class Read(dict):
        def __getitem__(self, name):
            reads.append(name)
            return torch.zeros(1000, 1000)

    found = decode([{"!tensor": "a"}] * 400, Read())
    assert (len(reads), len(found)) == (1, 400)
    image = {"!media": {"kind": "Image", "pixels": {"!tensor": "a"}, "caption": ""}}
    with pytest.raises(ValueError, match="many media of the same tensors"):
        decode([image] * 400, Read())


def test_a_tensor_of_two_objects_is_refused(run):
    path = run / NEWEST / "state.json"
    tree = json.loads(path.read_text())
    own = tree["objects"]["optimizer"]
    tree["objects"] |= {f"{number}": own for number in range(400)}
    path.write_text(json.dumps(tree))
    with pytest.raises(BrokenCheckpoint, match="names the tensor .* twice, for two owners"):
        tree_in(checkpoints(run)[-1].path)


def pipe(path):
    os.mkfifo(path)


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


def sparse(path):
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["journal.jsonl", "rows.jsonl"])
@pytest.mark.parametrize("place", [pipe, link_to_zeros, sparse, os.mkdir])
def test_a_log_that_is_no_file_of_lines_is_told_of(run, hostile, name, place):
    (run / name).unlink()
    place(run / name)

    def read():
        wrong = hostile.measured(lambda: hostile.main(["report", str(run), "-o", str(run / "o")]))
        return [wrong, shown(run).notes, is_written(run / name)]

    wrong, notes, _ = hostile.in_child(read)
    assert wrong is None
    assert [note.startswith(name) for note in notes] == [True]


def test_of_a_line_that_is_too_long_or_too_rich_the_rows_before_are_shown(run, monkeypatch):
    count = len((run / "rows.jsonl").read_bytes().splitlines())
    with (run / "rows.jsonl").open("ab") as file:
        file.write(b'{"iteration": 5, "loss": [' + b"1," * budget.MOST_IN_LINE + b"1]}\n")
    (note,) = shown(run).notes
    assert note.startswith("rows.jsonl has a line of about 500")
    assert note.endswith(f"shown: the {count} rows before it")
    (run / "journal.jsonl").unlink()
    monkeypatch.setattr("camshaft.handlers.files.lines.LONGEST_LINE", 1000)
    (run / "rows.jsonl").write_bytes(b'{"iteration": 1}\n' + b"x" * 1001)
    assert shown(run).notes == [
        "rows.jsonl has a line of more than 1,000 bytes; shown: the 1 rows before it"
    ]


def test_a_journal_of_a_year_is_shown_with_fewer_signs_of_life(tmp_path):
    path, count = tmp_path / "journal.jsonl", 30_000
    with path.open("w") as file:
        for number in range(count):
            event = {0: "started", count - 1: "completed"}.get(number, "running")
            event = "saving" if number % 1000 == 999 else event
            line = {"event": event, "part": "a", "time": number, "iteration": number}
            file.write(json.dumps(line) + "\n")
    records = read_journal(path)
    assert len(records) < 2100
    events = Counter(record["event"] for record in records)
    assert (events["saving"], events["started"]) == (30, 1)
    times = [record["time"] for record in records]
    assert (times, times[0], times[-1]) == (sorted(times), 0, count - 1)


def test_more_metrics_files_and_settings_than_a_page_shows_are_told_of(tmp_path):
    metrics = {f"m{number}/loss": number for number in range(budget.MOST_SHOWN + 5)}
    (tmp_path / "a.jsonl").write_text(json.dumps({"iteration": 1, "loss": 1} | metrics) + "\n")
    for number in range(budget.MOST_FILES):
        (tmp_path / f"b{number}.jsonl").touch()
    config = {str(number): number for number in range(budget.MOST_SHOWN + 5)}
    line = {"event": "started", "part": "a", "config": config}
    (tmp_path / "journal.jsonl").write_text(json.dumps(line) + "\n")
    found = shown(tmp_path)
    assert len(found.curves) == budget.MOST_SHOWN
    assert len(found.config) == budget.MOST_SHOWN
    assert len(found.notes) == 3


def test_a_configuration_that_nests_costs_no_more_than_it_says():
    nested = {}
    for _ in range(150):
        nested = {"k" * 5000: nested, "v": 1}
    assert sum(map(len, by_path(nested))) < 100_000


def test_a_chart_of_thousands_of_metrics_is_drawn_in_linear_time(tmp_path, hostile):
    metrics = {f"m{number}/loss": number for number in range(1900)}
    row = json.dumps({"iteration": 1, "loss": 1} | metrics)
    (tmp_path / "rows.jsonl").write_text(f"{row}\n")
    given = ["report", str(tmp_path), "-o", str(tmp_path / "page.html")]
    assert hostile.in_child(lambda: hostile.measured(lambda: hostile.main(given))) is None


def test_a_column_is_no_wider_than_a_screen_so_one_long_cell_costs_once():
    lines = aligned([("x" * 10_000, 1), *(("a", 2) for _ in range(1000))])
    assert sum(map(len, lines)) < 200_000
    assert lines[0].endswith("x  1")


def test_of_very_many_checkpoints_the_last_are_listed(run, hostile, monkeypatch, capsys):
    monkeypatch.setattr(budget, "MOST_CHECKPOINTS", 2)
    found = look(run, thoroughly=False)
    assert [each.path.name for each in found] == [f"iteration-{n:010d}" for n in (3, 4)]
    for command in ("inspect", "verify"):
        assert hostile.main([command, str(run)]) == 0
        assert "shown: the last 2 of 3" in capsys.readouterr().out
    assert "checkpoints, shown: the last 2 of 3" in shown(run).notes


def test_a_file_of_holes_is_verified_without_reading_them(run):
    name, size = "train.safetensors", 2**40 + 5
    content = (run / NEWEST / name).read_bytes()
    os.truncate(run / NEWEST / name, size)
    first, zeros = content + bytes(2**24 - len(content)), zlib.crc32(bytes(2**24))
    sums = [zlib.crc32(first), *[zeros] * (size // 2**24 - 1), zlib.crc32(bytes(size % 2**24))]
    path = run / NEWEST / "manifest.json"
    manifest = Manifest.of_json(path.read_text())
    checksums = type(manifest.files[name])(size, sums)
    files = manifest.files | {name: checksums}
    path.write_text(type(manifest)(**{**vars(manifest), "files": files}).to_json())
    verify_files(checkpoints(run)[-1])


def test_images_of_many_names_are_counted(tmp_path, monkeypatch):
    for number in range(8):
        Image(torch.zeros(1, 1))
        (tmp_path / f"n{number}").mkdir()
        (tmp_path / f"n{number}" / "1.png").write_bytes(b"\x89PNG")
    monkeypatch.setattr(budget, "MOST_IMAGES", 6)
    found = shown(tmp_path)
    assert len(found.images) == 2
    assert "at most 6 images and folders" in found.notes[0]


def test_a_tree_without_objects_is_broken_also_when_it_is_stripped(run, hostile, capsys, fitting):
    fitting(run, lambda tree: tree.pop("objects"), "iteration-0000000002")
    given = ["prune", str(run), "--keep", "best(1, 'loss', mode='max')", "--strip"]
    assert hostile.main(given) == 0
    assert "stays" in capsys.readouterr().out


@pytest.mark.parametrize("place", [pipe, link_to_zeros])
def test_weights_are_read_of_files_alone(tmp_path, hostile, place):
    place(tmp_path / "weights.pt")
    read = hostile.in_child(
        lambda: hostile.measured(lambda: weights_at(tmp_path / "weights.pt", "m"))
    )
    assert read is None


def test_weights_that_are_compressed_are_refused(tmp_path):
    torch.save({"model": torch.zeros(10**6)}, tmp_path / "a.pt")
    with ZipFile(tmp_path / "a.pt") as old, ZipFile(tmp_path / "b.pt", "w", ZIP_DEFLATED) as new:
        for each in old.infolist():
            new.writestr(each.filename, old.read(each))
    assert "model" in weights_at(tmp_path / "a.pt", "model")
    with pytest.raises(ValueError, match="it is compressed"):
        weights_at(tmp_path / "b.pt", "model")


def test_a_torn_line_is_left_for_later(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"1\n2\n3")
    with path.open("rb") as file:
        assert list(whole_lines(file)) == [b"1\n", b"2\n"]
