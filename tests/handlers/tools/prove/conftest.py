"""Proofs of tiny scripts."""

import json
from textwrap import dedent

import pytest

from camshaft.handlers.tools.prove import prove


@pytest.fixture
def proof(forked, tmp_path, monkeypatch, capsys):
    """Proves a script that lies in a directory of the user's; the exit code and what was told."""
    monkeypatch.chdir(tmp_path)

    def run(script, *arguments, kills=2, **options):
        (tmp_path / "train.py").write_text(dedent(script))
        command = ["python", "train.py", *map(str, arguments)]
        code = prove(command, kills=kills, as_json=True, start=forked, **options)
        told = json.loads(capsys.readouterr().out)
        return code, told

    return run
