"""Check that type checkers know the type of every public name, by `pyright --verifytypes`.

pyright looks at an installed package, and the editable install consists of links. So a folder gets
a copy of the package, and links to everything else that this environment has.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]


def complaints(folder: Path) -> tuple[float, list[str]]:
    """The share of the names whose type is known, and a line for each of the others."""
    package = folder / "camshaft"
    package.mkdir()
    for name in ("engine", "handlers"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "__init__.pyi", "__main__.py", "py.typed"):
        shutil.copy(ROOT / name, package)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(("camshaft", "__editable__")) and each.suffix != ".pth":
            (folder / each.name).symlink_to(each)
    command = [Path(sys.executable).with_name("pyright"), "--verifytypes", "camshaft"]
    command += ["--pythonpath", Path(sys.base_prefix, "bin", "python3")]
    command += ["--ignoreexternal", "--outputjson"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    found = json.loads(result.stdout)["typeCompleteness"]
    if not found["exportedSymbolCounts"]["withKnownType"]:
        raise SystemExit(f"pyright found no package: {result.stdout[:2000]}{result.stderr}")
    return found["completenessScore"], [
        f"{each['name']}: {said['message']}"
        for each in found["symbols"]
        if each["isExported"] and not each["isTypeKnown"]
        for said in each["diagnostics"]
    ]


with TemporaryDirectory() as temporary:
    score, lines = complaints(Path(temporary))
print(f"types of public names that are known: {score:.2%}")
if score < 1:
    sys.exit("\n".join([*lines[:30], "annotate these names"]))
