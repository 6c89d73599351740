"""Draw docs/guides/order.svg, the picture of the engine of examples/digits.py: make picture."""

import runpy
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def draw() -> str:
    """The picture of the example's engine, which trains for no epoch here."""
    main = runpy.run_path(str(ROOT / "examples" / "digits.py"))["main"]
    with tempfile.TemporaryDirectory() as directory:
        engine, _ = main(["--directory", directory, "--max-epochs", "0"])
    picture: str = engine.describe().svg()
    return picture


if __name__ == "__main__":
    (ROOT / "docs" / "guides" / "order.svg").write_text(draw())
