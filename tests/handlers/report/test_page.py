"""The page is one file that asks for nothing, whatever a run calls its metrics."""

import builtins
import json
import re
from html.parser import HTMLParser

import pytest

from camshaft.handlers.report.page import asset, embedded, library, news, page
from camshaft.handlers.report.run import runs_in

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
