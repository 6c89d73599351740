"""A run of the bridge goes on exactly: after a kill, a signal, an exception, a terminate."""

import gc
import os
import signal
import weakref

import pytest
import torch
from ignite.engine import Events
from ignite.handlers import EMAHandler, EpochOutputStore, PiecewiseLinear
from ignite.metrics import Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import camshaft
from camshaft import seed_everything
from camshaft.handlers import Checkpoint, StopOnSignal
from camshaft.handlers.bridges.ignite import Engine, create_supervised_trainer

SCRIPT = """
    import os, signal, sys
    import torch
    from ignite.handlers import PiecewiseLinear
    from ignite.metrics import RunningAverage
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    import camshaft
    from camshaft import seed_everything
    from camshaft.handlers import Checkpoint
    from camshaft.handlers.bridges.ignite import Events, create_supervised_trainer

    directory, kill = sys.argv[1], [int(each) for each in sys.argv[2:]]
    seed_everything(7)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = create_supervised_trainer(model, optimizer, nn.MSELoss())
    schedule = PiecewiseLinear(optimizer, "lr", milestones_values=[(0, 0.01), (18, 0.0)])
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
    every = camshaft.Events.ITERATION_COMPLETED(every=2)
    trainer.add(Checkpoint(directory, when=every, resume=True))
    data = TensorDataset(torch.randn(24, 3), torch.randn(24, 1))

    @trainer.on(Events.ITERATION_COMPLETED)
    def end(engine):
        if engine.state.iteration in kill:
            os.kill(os.getpid(), signal.SIGKILL)

    state = trainer.run(DataLoader(data, batch_size=4, shuffle=True), max_epochs=3)
    weights = [value.tolist() for value in model.state_dict().values()]
    print(state.epoch, state.iteration, state.metrics["loss"], optimizer.param_groups[0]["lr"])
    print(weights, torch.get_rng_state().sum().item())
"""


@pytest.mark.slow
def test_a_killed_run_is_the_same_run_with_ignites_schedule_and_running_average(
    processes, tmp_path
):
    """Killed in the middle of epochs, twice; ignite's handlers are saved with the run."""
    whole = processes.run(SCRIPT, tmp_path / "whole")
    for kill in (5, 15):
        processes.run(SCRIPT, tmp_path / "killed", kill, code=-signal.SIGKILL)
    assert processes.run(SCRIPT, tmp_path / "killed").stdout == whole.stdout


def trainer_of(exact=False, orders=None):
    """A trainer with random numbers in its model and its data, and a place to give orders."""
    seed_everything(3)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = create_supervised_trainer(model, optimizer, nn.MSELoss(), exact=exact)
    data = TensorDataset(torch.randn(24, 3), torch.randn(24, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    if orders is not None:
        trainer.add_event_handler(Events.ITERATION_COMPLETED, orders)
    return model, trainer, loader


def weights_of(model):
    return [value.tolist() for value in model.state_dict().values()]


def straight(epochs=3):
    model, trainer, loader = trainer_of()
    trainer.run(loader, max_epochs=epochs)
    return weights_of(model), trainer.state.iteration


def test_stop_on_signal_saves_and_the_same_script_goes_on(tmp_path):
    def stop(engine):
        if engine.state.iteration == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    model, trainer, loader = trainer_of(orders=stop)
    trainer.add(Checkpoint(tmp_path, resume=True), StopOnSignal())
    with pytest.raises(SystemExit) as raised:
        trainer.run(loader, max_epochs=3)
    assert (raised.value.code, trainer.state.iteration) == (143, 8)
    model, trainer, loader = trainer_of()
    trainer.add(Checkpoint(tmp_path, resume=True), StopOnSignal())
    trainer.run(loader, max_epochs=3)
    assert (weights_of(model), trainer.state.iteration) == straight()


@pytest.mark.parametrize("ways", ["terminate", "raise", "interrupt"])
def test_an_exact_engine_goes_on_where_the_last_run_ended(ways):
    def end(engine):
        if engine.state.iteration == 8:
            if ways == "raise":
                raise KeyboardInterrupt
            getattr(engine, ways)()

    model, trainer, loader = trainer_of(exact=True, orders=end)
    if ways == "raise":
        with pytest.raises(KeyboardInterrupt):
            trainer.run(loader, max_epochs=3)
    else:
        trainer.run(loader, max_epochs=3)
    torch.rand(5)  # of no consequence
    assert trainer.run(loader, max_epochs=3) is trainer.state
    assert (weights_of(model), trainer.state.iteration) == straight()
    assert trainer.state.epoch == 3


def test_a_run_that_is_interrupted_by_camshafts_api_and_goes_on_ends_at_the_same_place():
    def place(at):
        _, trainer, loader = trainer_of(exact=True)
        if at:
            trainer.native.on(camshaft.Events.ITERATION_COMPLETED(at=at))(
                lambda state: state.interrupt("for now")
            )
        for _ in range(1 + bool(at)):
            trainer.run(loader, max_epochs=3)
        position = trainer.state_dict()["camshaft"]["control"]["position"]
        return [position[name] for name in ("number", "began", "used_up", "at_end")]

    assert place(8) == place(0) == [3, 12, False, False]


def test_an_exact_engine_goes_on_exactly_by_ignites_own_state_dict(tmp_path):
    """So a checkpoint of ignite's `Checkpoint(to_save={"trainer": trainer, ...})` is enough."""
    file = tmp_path / "saved.pt"

    def save(engine):
        if engine.state.iteration == 8:
            everything = {**engine.objects, "trainer": engine}
            torch.save({name: each.state_dict() for name, each in everything.items()}, file)

    _, trainer, loader = trainer_of(exact=True, orders=save)
    trainer.run(loader, max_epochs=3)
    model, trainer, loader = trainer_of(exact=True)
    saved = torch.load(file, weights_only=False)
    for name, each in {**trainer.objects, "trainer": trainer}.items():
        each.load_state_dict(saved[name])
    torch.rand(5)
    trainer.run(loader)
    assert (weights_of(model), trainer.state.iteration) == straight()


def test_what_ignite_repeats_or_loses_is_told_once_and_done_as_by_ignite(caplog):
    def fail(engine, batch):
        if engine.state.iteration == 2:
            raise LookupError("no such row")
        return batch

    engine = Engine(fail)
    with pytest.raises(LookupError):
        engine.run([1, 2, 3], max_epochs=2)
    assert engine.run([1, 2, 3], max_epochs=2) is None
    engine.run([1, 2, 3], max_epochs=2)
    assert [word in caplog.text for word in ("returned None", "from the beginning")] == [True] * 2
    swallows = Engine(fail)
    swallows.add_event_handler(Events.EXCEPTION_RAISED, lambda error: None)
    for _ in range(2):
        swallows.run([1, 2, 3], max_epochs=1)
    assert caplog.text.count("an exception was swallowed") == 1


@pytest.mark.parametrize("exact", [True, False])
def test_an_engine_is_freed_with_its_last_name_after_a_run(exact):
    engine = Engine(lambda engine, batch: batch, exact=exact)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: None)
    engine.run([1, 2], max_epochs=2)
    reference = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert reference() is None
    finally:
        gc.enable()


def with_all_that_remembers(folder, stop=None):
    """A trainer whose handlers have no `state_dict`, or one with functions in it, or share it."""

    def leave(engine):
        if engine.state.iteration == stop:
            engine.interrupt()

    model, trainer, loader = trainer_of(orders=leave)
    average, outputs = EMAHandler(model, 0.2), EpochOutputStore()
    average.attach(trainer)
    outputs.attach(trainer, "outputs")
    running = RunningAverage(output_transform=lambda loss: loss)
    running.attach(trainer, "running")
    (running * 2 + 1).attach(trainer, "sum")
    schedule = PiecewiseLinear(
        *(trainer.objects["optimizer"], "lr"), [(0, 0.01), (18, 0.0)], save_history=True
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    mean = Loss(lambda y_pred, y: y_pred, output_transform=lambda loss: (torch.tensor(loss), [0]))
    mean.attach(trainer, "mean")
    trainer.add(Checkpoint(folder, resume=True))
    trainer.run(loader, max_epochs=3)
    state = trainer.state
    return [
        *(weights_of(model), weights_of(average.ema_model), state.outputs),
        *(dict(state.metrics), state.param_history, state.iteration),
    ]


def test_all_that_ignites_handlers_remember_goes_on_in_mid_epoch(tmp_path):
    whole = with_all_that_remembers(tmp_path / "whole")
    with_all_that_remembers(tmp_path / "left", stop=8)
    assert with_all_that_remembers(tmp_path / "left") == whole


def test_an_exact_engine_raises_what_its_handlers_saw_once():
    seen = []

    def fail(engine, batch):
        raise LookupError("no such row")

    engine = Engine(fail, exact=True)
    engine.add_event_handler(Events.EXCEPTION_RAISED, seen.append)
    with pytest.raises(LookupError, match="no such row"):
        engine.run([1, 2], max_epochs=1)
    assert len(seen) == 1
