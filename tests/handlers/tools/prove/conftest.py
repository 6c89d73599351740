"""Proofs of tiny scripts, whose processes are forked instead of started."""

import json
from textwrap import dedent

import pytest

from camshaft.handlers.tools.prove import prove

FORKED = """
import os, runpy, sys
hook, script, *arguments = sys.argv[1:]
sys.path.insert(0, os.path.dirname(hook))
import sitecustomize
del sys.modules["sitecustomize"]
runpy.run_path(hook, run_name="sitecustomize")
sys.argv = [script, *arguments]
sys.modules["__main__"].__file__ = script
exec(compile(open(script).read(), script, "exec"), vars(sys.modules["__main__"]))
"""


class Forked:
    """A process of the fork server, used like one of `subprocess`."""

    def __init__(self, process, output):
        self.process, self.output, self.pid = process, output, process.pid

    def wait(self, timeout=None):
        with self.process:
            out, errors = self.process.communicate()
            with self.output.open("a") as file:
                file.write(out + errors)
            return self.process.wait()


@pytest.fixture
def forked(processes):
    """Starts a script in a forked process."""

    def start(command, place, environment, output):
        hook = environment["PYTHONPATH"].split(":")[0] + "/sitecustomize.py"
        output.touch()
        process = processes.start(FORKED, hook, *command[1:], cwd=place, env=environment)
        return Forked(process, output)

    return start


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
