"""Draw the pictures of the docs: make picture.

docs/script.svg shows the engine of the README, docs/guides/order.svg that of examples/digits.py.
"""

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def of_the_readme() -> str:
    """The picture of the README's engine, which is built and does not run."""
    page = (ROOT / "README.md").read_text()
    script = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(script.partition("state = engine.run")[0], "train.py", "exec"), names)
    picture: str = names["engine"].describe().svg()
    return picture


def of_the_example() -> str:
    """The picture of the example's engine, which trains for no epoch here."""
    main = runpy.run_path(str(ROOT / "examples" / "digits.py"))["main"]
    with tempfile.TemporaryDirectory() as directory:
        engine, _ = main(["--directory", directory, "--max-epochs", "0"])
    picture: str = engine.describe().svg()
    return picture


PICTURES = {"docs/script.svg": of_the_readme, "docs/guides/order.svg": of_the_example}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ROOT / name).write_text(draw())
