"""Part of the build: the README for a package index, which shows it without the repository."""

import re
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!\w+:|#)([^)]+)\)")


def absolute(match: re.Match[str]) -> str:
    """A link to the repository on the web; a picture needs the file itself."""
    picture, opening, path = match.groups()
    kind = "raw" if picture else "tree" if (ROOT / path.partition("#")[0]).is_dir() else "blob"
    return f"{picture}{opening}{SOURCE}/{kind}/main/{path})"


class Modules(build_py):
    """The modules of the package, whose folder is this one, without this file."""

    def find_package_modules(self, package: str, package_dir: str) -> list[Any]:
        """All modules but this one, which lies in the folder of the package."""
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if each[1] != "setup"]


setup(
    cmdclass={"build_py": Modules},
    long_description=LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
