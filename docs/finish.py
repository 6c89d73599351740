"""What the pages of the site get after the generator has written them."""

import html
import os
import re
from pathlib import Path

TAG = re.compile(r"<[^>]*>")
BUILT = re.compile(r"build/__editable__[^/<]*/camshaft/")
"""Where the editable install keeps the files of the package, which a reader knows without it."""
GUIDE = re.compile(r"(?<![\w/\"])docs/([\w/-]+)\.md\b")
"""A page that a docstring names, and not a part of an address."""
PROSE = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
"""Splits a page into texts, and blocks of code at the odd places."""
BLOCK = re.compile(r'(<div class="highlight"><pre><span></span>)<code>(.*?)</code>', re.DOTALL)
PROMPT = re.compile(r'^(?:<span[^>]*></span>)*<span class="gp">(?:\$|&gt;&gt;&gt;|\.\.\.) ?</span>')
TITLE = re.compile(r"<h1[^>]*>(.*?)<a ", re.DOTALL)


def commands(code: str) -> str:
    """What a reader types of a block with prompts: without these, and without the output."""
    lines = (PROMPT.subn("", line) for line in code.splitlines())
    return "\n".join(html.unescape(TAG.sub("", line)) for line, count in lines if count)


def copied(match: re.Match[str]) -> str:
    """A block of code whose button copies what a reader types."""
    opening, code = match.groups()
    typed = html.escape(commands(code))
    return f'{opening}<code data-copy="{typed}">{code}</code>' if typed else match.group(0)


def finish(site: Path) -> None:
    """Rewrite the pages of a site."""
    pages = {each: each.read_text() for each in site.rglob("*.html")}
    titles = {each: found[1] for each, text in pages.items() if (found := TITLE.search(text))}
    for page, text in pages.items():

        def link(match: re.Match[str], page: Path = page) -> str:
            other = site / f"{match[1]}.html"
            if other not in titles:
                return match[0]
            return f'<a href="{os.path.relpath(other, page.parent)}">{titles[other]}</a>'

        finished = BLOCK.sub(copied, BUILT.sub("", text))
        if page.parent.name == "reference":
            pieces = enumerate(PROSE.split(finished))
            finished = "".join(each if n % 2 else GUIDE.sub(link, each) for n, each in pieces)
        if finished != text:
            page.write_text(finished)
