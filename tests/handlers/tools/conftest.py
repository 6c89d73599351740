"""Scripts of trials, whose processes are forked instead of started."""

import pytest

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
