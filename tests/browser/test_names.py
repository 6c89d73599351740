"""Names and texts from elsewhere, drawn by a grammar, on the page of a run: text and nothing else.

A run with hostile names is compared with its twin, the same run with harmless ones: the pages have
as many elements of each kind, and show each text as it is written.
"""

import json
import re
import threading
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from random import Random

import pytest

from camshaft import Engine, Events
from camshaft.__main__ import main
from camshaft.handlers import Checkpoint, Journal, JSONLines
from camshaft.handlers.files import budget, printable
from camshaft.handlers.loggers import Histogram, Image, ImageFiles
from camshaft.handlers.tools.report import make_server

MARKUP = r"""
<script>alert(1)</script> </script> <script> </title> </style> </textarea> </p> </td> </table>
<b> <i> <br> <sub>2</sub> <tspan> <span~style=x> <extra> </extra> <math><mi> <template>
<img~src=x~onerror=alert(1)> <svg/onload=alert(1)> <svg><text>x</text></svg> <iframe~srcdoc='x'>
<a~href="javascript:alert(1)">x</a> <a~href='https://evil.example/'>x</a>
<base~href=//evil.example> <form~action=//evil.example> <link~rel=stylesheet~href=//evil.example>
<meta~http-equiv=refresh~content=0;url=//evil.example> <style>*{display:none}</style>
<noscript> <plaintext> <details~open~ontoggle=alert(1)>
<!-- --> <!--> <![CDATA[ ]]> <?xml <!doctype~html> </ < > << />
"onmouseover="alert(1) '~onfocus='alert(1)~autofocus=' `onload=`alert(1) "> '> */ // \ \x3cb\x3e
&lt; &lt;b&gt; &amp;lt; &#60;b&#62; &#x3c; &nbsp; &copy &quot;onload=&quot; & && &;
javascript:alert(1) data:text/html,x vbscript:x https://evil.example/x.png //evil.example
url(//x.y) expression(alert(1)) @import ;color:red} } { {{ }} {{7*7}} ${7*7} $data $title
%{y} %{fullData.name} %(message)s __proto__ constructor toString $x^2$ [object~Object] ../../x ..\x
"""
HTML = [piece.replace("~", " ") for piece in MARKUP.split()]
FORMAT = [
    *("\u202e", "\u202d", "\u2066", "\u2069", "\u200b", "\u200d", "\u00ad", "\ufeff", "\u2028"),
    *("\x00", "\x01", "\x07", "\x08", "\t", "\n", "\r", "\r\n", "\x1b[2J", "\x1b]0;x\x07", "\x7f"),
    *("\x85", "\xa0", "\u3000", "\udc80", "\udfff", "\ufffe", "\ufdd0", "\U000e0001", "\U0010ffff"),
]
PLAIN = ["loss", "lr", "x", "é", "学", "🙂", "/", "_", ".", " ", "-", "7"]


def hostile(random):
    """A name: pieces of markup, scripts, styles and templates, with unseen characters."""
    return "".join(random.choice(random.choice([HTML, HTML, FORMAT, PLAIN])) for _ in range(4))


def in_path(random):
    """The same, as it may be a folder or stand before a slash."""
    return re.sub("[/\0\udc80\udfff]", "", hostile(random))


def of_one_line(random):
    """The same without a line break, after which a comparison of runs shows no more of a reason."""
    return hostile(random).replace("\n", "")


def harmless(name):
    """A name of letters that has a mark for every other character, and lines break it alike."""
    return re.sub(r"[^a-zA-Z0-9/_.-]", lambda found: f"x{ord(found[0]):x}x", name)


class Names:
    """Names in an order that a seed gives; of the twin, their harmless forms."""

    def __init__(self, seed, is_hostile):
        self._random, self._is_hostile = Random(seed), is_hostile
        self.given = []

    def one(self, make=hostile):
        name = f"{make(self._random)}<b>\u202en{len(self.given)}n"  # each is another
        name = name if self._is_hostile else harmless(name)
        self.given.append(name)
        return name

    def many(self, count):
        return [self.one() for _ in range(count)]


def run_with(names, directory, lines=3, metrics=12, settings=150):
    """Trains a real run whose metrics, images, reasons, config and handlers have such names."""
    import torch

    known, longest = names.many(metrics), names.one(lambda random: hostile(random) * 200)
    spread, shown, prefix = names.one(), names.one(in_path), names.one(in_path)
    reason = names.one()

    def step(state, batch):
        for place, name in enumerate(known):
            state.metrics[name] = float("nan") if place == 0 and batch == 1 else batch / 2 + place
        state.metrics |= {"loss": 1 / batch, f"{prefix}/loss": 2 / batch, longest: 1.0}
        state.metrics[spread] = Histogram.of(torch.arange(batch + 2.0))
        state.metrics[f"seen/{shown}"] = Image(torch.full((8, 8), batch / 4))
        if batch == 2:
            state.save(reason)

    def handler(state):
        pass

    handler.__qualname__ = handler.__name__ = names.one()
    each = Events.ITERATION_COMPLETED
    config = {names.one(): names.one() for _ in range(settings)}
    engine = Engine(step, Checkpoint(directory), Journal(directory, config=config))
    engine.add(JSONLines(directory / "rows.jsonl", when=each))
    engine.add(ImageFiles(directory / "images", when=each))
    engine.on(each)(handler)
    engine.run([1, 2, 3], max_epochs=1)
    forge(names, directory / "journal.jsonl", lines)
    return directory


def forge(names, journal, of_reason):
    """Writes into a journal what no engine writes: any environment, handlers and reason."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[0]["environment"] |= {names.one(): names.one() for _ in range(9)}
    lines[0]["handlers"] += [names.many(5) for _ in range(9)]
    reason = [names.one(of_one_line) for _ in range(of_reason)]
    lines[-1] |= {"event": "failed", "reason": "\n".join(reason)}
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def pages(tmp_path, seed, count):
    """The page of a run, or of several, with hostile names, the page of its twin, and the texts."""
    made = []
    for kind in ("hostile", "harmless"):
        names = Names(seed, kind == "hostile")
        folder = tmp_path / kind
        runs = [
            run_with(names, folder / names.one(in_path), 8 if count == 1 else 1)
            for _ in range(count)
        ]
        path = tmp_path / f"{kind}.html"
        assert main(["report", *map(str, runs), "-o", str(path)]) == 0
        made.append((path, names.given))
    return made


class Elements(HTMLParser):
    """What a parser finds in a page: elements, attributes, scripts and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.scripts, self.text = Counter(), Counter(), [], ""
        self.odd, self._is_script = [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes.update((tag, name) for name, _ in attrs)
        self._is_script = tag == "script"

    def handle_endtag(self, tag):
        self.tags[f"/{tag}"] += 1
        self._is_script = False

    def handle_data(self, data):
        if self._is_script:
            self.scripts.append(data)
        else:
            self.text += data

    def handle_comment(self, data):
        self.odd.append(data)

    handle_pi = unknown_decl = handle_comment


SEEDS = [
    0,
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5)),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(5, 500)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_names_add_no_element_or_attribute_and_every_text_is_there(tmp_path, seed):
    (path, names), (twin, _) = pages(tmp_path, seed, 1 + seed % 2)
    text = path.read_text()
    found, expected = Elements(text), Elements(twin.read_text())
    assert found.tags == expected.tags
    assert found.attributes == expected.attributes
    assert found.odd == expected.odd == []
    assert found.scripts[1:] == expected.scripts[1:]  # plotly.js and our code
    json.loads(found.scripts[0])
    own = text.replace(found.scripts[1], "")
    assert {each for each in own if not each.isprintable()} <= {"\n"}
    squeezed = unescape(re.sub("<wbr>", "", own))
    left_out = [name for name in names if printable(name) not in squeezed.replace("\n", "\\n")]
    assert not [name for name in left_out if len(name) <= budget.LONGEST_NAME], left_out


ELEMENTS = """document.readyState && (within => Object.entries(
    [...document.querySelectorAll('*')].filter(e => !!e.closest('.chart') == within)
      .reduce((n, e) => ({...n, [e.localName]: 1 + (n[e.localName] ?? 0)}), {})).sort())"""
DANGEROUS = (
    "script, a:not(.skip), iframe, base, form:not(#controls), foreignObject, [onerror], [onload]"
)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [pytest.param(1, 2, marks=pytest.mark.soak), (0, 1)])
def test_a_browser_runs_nothing_of_them_asks_for_nothing_and_shows_them_as_they_are(
    tmp_path, open_page, seed, count, artefact
):
    shapes = []
    for path, names in pages(tmp_path, seed, count):
        page = open_page(path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.evaluate("drawAll()")
        for place in page.locator("#settings .js-plotly-plot").all():  # of several runs
            place.evaluate("place => Plotly.Fx.hover(place, [{curveNumber: 0, pointNumber: 0}])")
            hovered = place.locator(".hoverlayer").text_content()
            assert any(printable(name) in hovered for name in names), hovered
        for place in page.locator("#charts .js-plotly-plot").all()[1:5]:
            place.evaluate("place => Plotly.Fx.hover(place, [{curveNumber: 0, pointNumber: 1}])")
            hovered = place.locator(".hoverlayer text").first.text_content()
            assert hovered in set(map(printable, names))
        undrawn = "all(\".chart\").filter(e => !e.classList.contains('js-plotly-plot')).length"
        assert page.evaluate(undrawn) == 0
        hides = "all('[data-hides^=split]').map(e => e.dataset.hides.slice(6))"
        groups = "Object.values(figures).flatMap(({data}) => data.map(({meta}) => meta.split))"
        assert page.evaluate(f"{hides}.length > 1 && {hides}.every(e => {groups}.includes(e))")
        assert page.complaints == []
        assert [url for url in page.asked if not url.startswith("data:image/png")] == [
            path.as_uri()
        ]
        inside = dict(page.evaluate(f"({ELEMENTS})(true)"))
        shapes.append((page.evaluate(f"({ELEMENTS})(false)"), sorted(inside)))
        assert page.locator(DANGEROUS).count() == 3  # the page's own scripts
        text = page.evaluate("document.body.textContent") + page.evaluate(
            "all('[aria-label], img').map(e => e.getAttribute('aria-label') ?? e.alt).join(' ')"
        )
        seen = text.replace("\n", "\\n")
        left_out = [name for name in names if printable(name) not in seen]
        assert not [name for name in left_out if len(name) <= budget.LONGEST_NAME], left_out
        drawn = page.evaluate("all('.chart text').map(e => e.textContent).join('\\n')")
        if count > 1:
            runs = (tmp_path / path.stem).iterdir()
            assert all(printable(run.name) in drawn for run in runs), drawn
        page.screenshot(path=artefact(f"report-names-{path.stem}-{count}"))
    assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_a_page_that_is_watched_shows_them_as_they_are_when_they_come(tmp_path, open_page):
    with make_server([tmp_path / "run"]) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
        thread.start()
        page = open_page(server.page_address)
        assert "Waiting for the run to begin" in page.inner_text("main")
        names = Names(2, is_hostile=True)
        run_with(names, tmp_path / "run")
        page.until("document.getElementById('live').textContent == 'failed'")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.evaluate("drawAll()")
        assert page.complaints == []
        root = f"http://127.0.0.1:{server.server_port}/"
        assert {re.sub("image/.*", "", url) for url in page.asked} <= {
            server.page_address,
            root,
            f"{root}data.json",
        }
        assert page.locator(DANGEROUS).count() == 3
        server.shutdown()
        thread.join()
