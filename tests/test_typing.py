"""What type checkers say of code that uses the library."""

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from torch import Tensor
from camshaft import Engine, Events, State

def step(state: State[str, Tensor], batch: str) -> Tensor:
    raise NotImplementedError

engine = Engine(step)

@engine.on(Events.ITERATION_COMPLETED(every=10))
def report(state: State[str, Tensor]) -> None:
    if state.output is not None:
        print(state.output.mean(), state.batch)

with engine.record() as trace:
    state: State[str, Tensor] = engine.run(["a", "b"], max_epochs=1)
print(trace.outer == engine.simulate(max_epochs=1, epoch_length=2), state.stop_reason)
"""
WRONG = {
    "a handler of another engine's state": """
@engine.on(Events.EPOCH_COMPLETED)
def wrong(state: State[int, Tensor]) -> None: ...
""",
    "a handler without a state": """
@engine.on(Events.EPOCH_COMPLETED)
def stateless() -> None: ...
""",
    "data of other batches": "engine.run([1, 2], max_epochs=1)\n",
    "a name that is not there": "from camshaft.handlers import Chekpoint\n",
    "a string for an event": 'engine.on("epoch_completed")\n',
}
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}


def check(checker, directory, source):
    sample = Path(directory, "sample.py")
    sample.write_text(source)
    command = [sys.executable, *CHECKERS[checker], str(sample)]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, timeout=250)


@pytest.mark.parametrize(
    "checker",
    [
        pytest.param("mypy", marks=pytest.mark.soak),
        pytest.param("pyright", marks=pytest.mark.slow),
    ],
)
def test_type_checkers_accept_what_is_right_and_reject_what_is_wrong(checker, tmp_path):
    right = check(checker, tmp_path, GOOD)
    assert right.returncode == 0, right.stdout
    wrong = check(checker, tmp_path, GOOD + "".join(WRONG.values()))
    assert wrong.returncode == 1
    lines = [line for line in wrong.stdout.splitlines() if "error" in line and "sample.py" in line]
    numbers = {int(line.replace(" - ", ":").split("sample.py:")[1].split(":")[0]) for line in lines}
    starts = []
    for source in WRONG.values():
        before = GOOD + "".join(WRONG.values()).split(source)[0]
        starts.append(range(before.count("\n") + 1, (before + source).count("\n") + 1))
    assert all(any(number in span for number in numbers) for span in starts), wrong.stdout
    assert all(any(number in span for span in starts) for number in numbers), wrong.stdout
