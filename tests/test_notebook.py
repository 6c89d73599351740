"""What the cells of a notebook show when a kernel executes them."""

from types import SimpleNamespace
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow  # a kernel imports torch; each piece has a test without one

CELLS = {
    "engine": """
        from camshaft import Engine, Events
        from camshaft.handlers import ProgressBar

        def train_step(state, batch):
            state.metrics["loss"] = 1 / batch

        engine = Engine(train_step)
        engine.add(ProgressBar("loss", interval=1e-9))
    """,
    "plan": "engine.simulate(max_epochs=2, epoch_length=3)",
    "run": "engine.run([1, 2, 4], max_epochs=2).stop_reason",
    "fail": "engine.run([1, 0, 4], max_epochs=1)",
    "interrupted": """
        import os, signal
        from camshaft.handlers import StopOnSignal

        other = Engine(train_step, StopOnSignal(exit=False))
        interrupt = lambda state: os.kill(os.getpid(), signal.SIGINT)
        other.on(Events.ITERATION_COMPLETED(at=2))(interrupt) and None
        state = other.run([1, 2, 4], max_epochs=1)
        state.iteration, state.stop_reason, other.run([1, 2, 4], state=state).iteration
    """,
    "again": 'engine.add(ProgressBar("loss", interval=1e-9)) and None',
}


@pytest.fixture(scope="module")
def executed():
    """The outputs of each cell by name, and the models of the widgets at the end."""
    lines = ["\n".join(map(str.strip, source.strip().splitlines())) for source in CELLS.values()]
    lines[0] = lines[0].replace('state.metrics["', '    state.metrics["')
    cells = [nbformat.v4.new_code_cell(each) for each in lines]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    outputs = {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}
    [widgets] = notebook.metadata["widgets"].values()
    models = [(each["model_name"], each["state"]) for each in widgets["state"].values()]
    return SimpleNamespace(outputs=outputs, models=models)


def test_an_engine_shows_its_picture(executed):
    [output] = executed.outputs["engine"]
    drawn = "".join(ElementTree.fromstring(output.data["image/svg+xml"]).itertext())
    assert "train_step" in drawn
    assert "ProgressBar" in drawn


def test_a_plan_is_shown_as_it_is_printed(executed):
    [output] = executed.outputs["plan"]
    text = ElementTree.fromstring(output.data["text/html"]).text
    assert any("Events.ITERATION_COMPLETED" in line for line in text.splitlines())


def test_a_run_shows_one_live_bar_and_nothing_on_standard_error(executed):
    bar, result = executed.outputs["run"]
    assert result.data["text/plain"] == "'max_epochs'"
    assert "application/vnd.jupyter.widget-view+json" in bar.data
    texts = [state["value"] for name, state in executed.models if name == "HTMLModel"]
    texts = [text.replace("\u2007", " ") for text in texts]
    assert sum(text.endswith("loss=0.25]") for text in texts) == 1
    assert any(text.startswith("epoch 2/2: 100%") for text in texts)


def test_the_bar_of_a_run_that_fails_turns_red(executed):
    assert executed.outputs["fail"][-1].ename == "ZeroDivisionError"
    bars = [state for name, state in executed.models if name == "FloatProgressModel"]
    assert [(bar["value"], bar["bar_style"]) for bar in bars] == [
        (6, "success"),
        (2, "danger"),
    ]


def test_an_interrupted_kernel_leaves_a_run_that_can_be_carried_on(executed):
    assert executed.outputs["interrupted"][-1].data["text/plain"] == "(2, 'SIGINT', 3)"


def test_a_cell_that_adds_a_handler_again_says_so(executed):
    [output] = executed.outputs["again"]
    assert "ProgressBar is attached already" in output.text
    assert "make the engine in that cell" in output.text
