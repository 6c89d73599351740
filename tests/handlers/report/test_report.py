"""`camshaft report`: one file that asks for nothing, or one line that says why not."""

import builtins
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from camshaft.handlers.report.page import asset, embedded, library, news, page
from camshaft.handlers.report.run import runs_in


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
    assert camshaft("report", one, two, "--output", page)[0] == 0
    assert "<title>one, two: Camshaft</title>" in page.read_text()


def test_a_name_that_no_encoding_has_is_no_error(camshaft, tmp_path):
    page = tmp_path / "page.html"
    assert camshaft("report", run_in(tmp_path / "one", **{"\ud800": 1}), "-o", page)[0] == 0


def test_checkpoints_or_a_journal_alone_are_a_run(camshaft, save, tmp_path):
    save(1)
    assert camshaft("report", tmp_path / "run", "-o", tmp_path / "page.html")[0] == 0


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


def test_a_place_that_cannot_be_written_is_code_1(camshaft, tmp_path):
    code, _, errors = camshaft("report", run_in(tmp_path / "one", loss=1), "-o", tmp_path)
    assert code == 1
    assert len(errors) == 1


def test_a_big_run_makes_a_small_page_without_torch(tmp_path):
    from camshaft.handlers.report.page import library

    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "rows.jsonl").open("w") as file:
        for iteration in range(100_000):
            row = {f"metric_{name}": iteration % (7 + name) for name in range(10)}
            file.write(json.dumps({"iteration": iteration, **row}) + "\n")
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "assert main(['report', 'run']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "report.html").read_text()
    assert "100,000 rows, drawn as" in text
    assert len(text) - len(library()) < 1_000_000


HOSTILE = "</script><script>alert(1)</script><!--"


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
    runs = runs_in([write(*rows or [{"iteration": 1, "loss": 1}])])
    runs[0].look()
    return page([name], news(runs), **options)


def test_a_metric_named_like_a_tag_stays_text(write):
    rows = [{"iteration": each, HOSTILE: each, "\ud800": 1} for each in (1, 2)]
    text = page_of(write, *rows, name=HOSTILE)
    parsed = Scripts(text)
    assert len(parsed.scripts) == 3
    assert json.loads(parsed.scripts[0])[f"curve {HOSTILE}"]["data"][0]["y"] == [1, 2]
    assert "<title>&lt;/script&gt;" in text
    assert text.count(HOSTILE) == 0


@pytest.mark.parametrize(
    "text", ["</script>", "<!--", "]]>", "\u2028", "&lt;", '"', "\\u003c", "$x"]
)
def test_embedded_text_cannot_end_its_script_and_comes_back_as_it_was(text):
    made = embedded({text: text})
    assert not set("<>&") & set(made)
    assert json.loads(made) == {text: text}


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
        assert "unsafe-eval" not in policy
        assert ("connect-src 'self'" in policy) == live


def test_nothing_is_loaded_from_anywhere():
    for name in ("page.html", "page.css", "page.js"):
        assert not re.search(r"https?://|src=\"|@import|url\(", asset(name))
    assert "</script" not in library() + asset("page.js")


def test_without_plotly_the_error_names_what_to_install(write, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "camshaft\[report\]"'):
        page_of(write)
