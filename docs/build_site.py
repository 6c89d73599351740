"""Build the documentation site in build/site from the Markdown pages and the docstrings: make docs.

The pages are written for a reader of the repository too. So they are first copied into build/pages,
where links to files that are not pages lead to the repository on the web.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from finish import finish
from gallery import example_page, example_pages
from reference import reference_pages
from search_index import LINE, add_words

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = tomllib.loads((DOCS / "zensical.toml").read_text())["project"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE = PROJECT["urls"]["Source"]
"""The repository on the web, to which links to files lead that are no pages."""
PUBLISHED = ".example" not in SOURCE
"""Whether that address is a real one, so that pages can link to it and be edited there."""
ELSEWHERE = {
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security.md": "SECURITY.md",
}
"""Pages of the site that lie outside of docs/."""
FOR_MAINTAINERS = {"project/decisions.md"}
"""Pages that stay in the repository."""
NOT_SEARCHED = {"project/changelog.md", "project/contributing.md"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((\S+)-light\.webp\)")
"""A picture that is there in dark colours too, of which the site shows the one that fits."""
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def pages() -> dict[str, Path]:
    """The Markdown files of the site, by their place on it."""
    written = {str(each.relative_to(DOCS)): each for each in sorted(DOCS.rglob("*.md"))}
    for_users = {page: file for page, file in written.items() if page not in FOR_MAINTAINERS}
    return for_users | {page: ROOT / source for page, source in ELSEWHERE.items()}


def moved(page: str, source: Path, places: dict[Path, str]) -> str:
    """The text of a page, with links that are right where it lies on the site."""

    def link(match: re.Match[str]) -> str:
        opening, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if ":" in target:
            return match.group(0)
        file = (source.parent / target).resolve()
        if file in places:
            target = os.path.relpath(places[file], Path(page).parent)
        elif not file.exists():
            raise SystemExit(f"{source.relative_to(ROOT)} links to {target}, which does not exist.")
        elif file.suffix == ".md" or not file.is_relative_to(DOCS):
            kind = "tree" if file.is_dir() else "blob"
            target = f"{SOURCE}/{kind}/main/{file.relative_to(ROOT)}"
        return f"{opening}{target}{anchor})"

    text = LINE.sub("", source.read_text())
    both = r"![\1](\2-light.webp#only-light)![\1](\2-dark.webp#only-dark)"
    pieces = CODE.split(PICTURE.sub(both, text))
    # In a table, GitHub needs a backslash before a bar in code, which the site would show.
    pieces = [each if each.startswith("```") else each.replace("\\|", "|") for each in pieces]
    return "".join(piece if n % 2 else LINK.sub(link, piece) for n, piece in enumerate(pieces))


def navigation(entries: list[Any], names: set[str]) -> list[Any]:
    """The entries of the settings, in which `folder/*` has become the pages that are not named.

    A page that is named and does not exist is an error, and so is a page that nothing names.
    """
    named = set(re.findall(r'"([^"]+\.md)"', json.dumps(entries)))
    folders = set(re.findall(r'"([^"]+)/\*"', json.dumps(entries)))
    lost = sorted(each for each in names - named if str(Path(each).parent) not in folders)
    if lost or named - names:
        raise SystemExit(
            f"nav in docs/zensical.toml lacks the pages {lost} and names {sorted(named - names)}, "
            "which do not exist. Name each page there."
        )

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            ((title, entries),) = entry.items()
            return [{title: found}] if (found := [x for e in entries for x in expand(e)]) else []
        if not entry.endswith("/*"):
            return [entry]
        return sorted(e for e in names - named if str(Path(e).parent) == entry[:-2])

    return [item for entry in entries for item in expand(entry)]


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {toml(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def first_paragraph(text: str) -> str:
    """The first lines of a page below its title, as plain text."""
    paragraphs = re.split(r"\n\s*\n", CODE.sub(lambda code: code[0].strip("`"), text))
    plain = (each for each in map(str.strip, paragraphs) if each[:1].isalpha())
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", next(plain, SETTINGS["site_description"]))
    return " ".join(words.replace("**", "").replace('"', "'").split())


def front_matter(page: str, text: str, sources: dict[str, Path]) -> str:
    """What the generator is told of a page: its summary, whether it is searched, its source."""
    about: dict[str, Any] = {"search": {"exclude": page in NOT_SEARCHED | example_pages().keys()}}
    if page == "index.md":
        about["hide"] = ["navigation", "toc"]  # the front page is wide
        about["title"] = "PyTorch training with exact resume"
    else:
        about["description"] = first_paragraph(text)
    if page in sources:
        about["edited"] = str(sources[page].relative_to(ROOT))
    return f"---\n{json.dumps(about)}\n---\n"


def addresses() -> dict[str, Any]:
    """The settings that come from pyproject.toml."""
    extra = SETTINGS["extra"] | {"release": PROJECT["version"]}
    return {"extra": extra} | ({"repo_url": SOURCE} if PUBLISHED else {})


def stage(folder: Path) -> None:
    """Write what the site's generator reads into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.md", "*.py", "*.toml", "__pycache__", "overrides")
    shutil.copytree(DOCS, folder / "pages", ignore=ignored)
    shutil.copytree(DOCS / "overrides", folder / "overrides")
    sources = pages()
    places = {source.resolve(): page for page, source in (sources | example_pages()).items()}
    texts = {page: moved(page, source, places) for page, source in sources.items()}
    sources |= example_pages()
    texts |= {page: example_page(source) for page, source in example_pages().items()}
    texts |= {f"reference/{name}": text for name, text in reference_pages().items()}
    for page, text in texts.items():
        path = folder / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(front_matter(page, text, sources) + text)
    places_of = {"docs_dir": "pages", "site_dir": "site"}
    nav = {"nav": navigation(SETTINGS["nav"], set(texts))}
    project = SETTINGS | addresses() | places_of | nav
    (folder / "zensical.toml").write_text(f"project = {toml(project)}\n")


def called() -> dict[str, str]:
    """What people call the subject of a page, by the page's location on the site."""
    lines = {page: LINE.search(source.read_text()) for page, source in pages().items()}
    return {f"{page[:-3]}.html": line.group(1) for page, line in lines.items() if line}


def main() -> None:
    """Stage the pages and build the site; any warning is an error."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").resolve()
    stage(folder)
    command = [*(sys.executable, "-m", "zensical", "build", "--strict", "--clean")]
    command += ["--config-file", str(folder / "zensical.toml")]
    path = os.pathsep.join([str(DOCS), os.environ.get("PYTHONPATH", "")])
    built = subprocess.run(command, env=os.environ | {"PYTHONPATH": path})
    if built.returncode == 0:
        finish(folder / "site")
        add_words(folder / "site", called())
    sys.exit(built.returncode)


if __name__ == "__main__":
    main()
