"""`python -m camshaft` looks at checkpoints."""

from .commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
