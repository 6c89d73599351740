"""Try every library of this folder, and write docs/project/works-with.md: `make crossings`.

They are installed into `.versions/crossings`, over the packages of .venv, so there is one torch.
Arguments go to pytest, such as `-k muon`; then, or if a test fails, the page is left as it is.
"""

import ast
import datetime
import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from crossing import KINDS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ROOT / ".versions/crossings"
PAGE = ROOT / "docs/project/works-with.md"
LINE = "<!-- From here on, this page is written by `make crossings`. -->\n"
VERDICTS = {"exact": "exact", "told": "reported"}


def install():
    """Make the environment; a requirements file that has changed is installed again."""
    if not PLACE.exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        below = sysconfig.get_path("purelib")
        scheme = {"base": str(PLACE), "platbase": str(PLACE)}
        below = f"import site; site.addsitedir({below!r})\n"  # with what is linked there
        Path(sysconfig.get_path("purelib", "venv", scheme), "below.pth").write_text(below)
    pip = [PLACE / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    torch = PLACE / "torch.txt"
    torch.write_text(f"torch=={version('torch').partition('+')[0]}\n")
    for name, options in {"alone.txt": ["--no-deps"], "requirements.txt": []}.items():
        wanted, had = (HERE / name).read_text(), PLACE / name
        if not had.exists() or had.read_text() != wanted:
            command = [*pip, *options, "--constraint", torch, "--requirement", HERE / name]
            subprocess.run(command, check=True)
            had.write_text(wanted)


def tables(rows):
    """What the page says of the rows: a count, and a table for each kind."""
    count, found = len({row["library"] for row in rows}), Counter(row["verdict"] for row in rows)
    yield (
        f"{count} libraries in {len(rows)} scripts: {found['exact']} exact, {found['told']} "
        f"reported. Tried on {datetime.datetime.now(datetime.UTC).date()} with "
        f"torch {version('torch').partition('+')[0]}, Python {sys.version_info.major}."
        f"{sys.version_info.minor}, on CPUs."
    )
    for kind in KINDS:
        some = [row for row in rows if row["kind"] == kind]
        if some:
            yield f"\n## {kind}\n\n| library | script | resumes | what to write |"
            yield "|---|---|---|---|"
        for row in sorted(some, key=lambda row: (row["library"].lower(), row["what"])):
            library = f"{row['library']} {row['version'].partition('+')[0]}"
            verdict = VERDICTS[row["verdict"]]
            what = " ".join(row["what"].split()).rstrip(".")
            write = ". ".join(filter(None, [as_code(row["line"]), row["note"].rstrip(".")]))
            yield f"| {library} | {what} | {verdict} | {write.replace('|', chr(92) + '|')} |"


def as_code(line):
    """A line of Python in backticks; a sentence as it is."""
    try:
        ast.parse(line)
    except SyntaxError:
        return line
    return f"`{line}`"


def main():
    install()
    results = ROOT / "build/crossings.jsonl"
    results.parent.mkdir(exist_ok=True)
    results.unlink(missing_ok=True)
    command = [PLACE / "bin/python", "-m", "pytest", "-o", "python_files=crossing_*.py", str(HERE)]
    # A file's scripts follow each other: mosaicml's share memory with fixed names.
    command += ["--numprocesses", "logical", "--maxprocesses", "8", "--dist", "loadfile"]
    command += ["-W", "ignore"]  # what libraries say as they are imported
    environment = os.environ | {"CAMSHAFT_CROSSINGS": str(results)}
    code = subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode
    if code == 0 and len(sys.argv) == 1:
        rows = [json.loads(line) for line in results.read_text().splitlines()]
        head = PAGE.read_text().partition(LINE)[0]
        PAGE.write_text(head + LINE + "\n".join(["", *tables(rows), ""]))
        print(f"wrote {PAGE.relative_to(ROOT)}: {len(rows)} scripts")
    return code


if __name__ == "__main__":
    sys.exit(main())
