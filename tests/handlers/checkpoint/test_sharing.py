"""What a checkpoint shares with the one before: the same bytes are on the disk once."""

import copy
import errno
import itertools
import os
import shutil
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from camshaft import Engine, Events, supervised
from camshaft.handlers import EMA, Checkpoint, Export, Freeze, checkpoints, latest, load_matching
from camshaft.handlers.checkpoint.directory import Directory, strip_to_weights, verify_files

EACH = Events.ITERATION_COMPLETED
FROZEN = "model.frozen.safetensors"
BATCH = (torch.linspace(-1, 1, 2400).reshape(4, 600), torch.ones(4, 2))


def partly_frozen():
    """1.4 MB that are frozen, and 5 kB that are trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 2))
    model[0].requires_grad_(False)
    return model


def engine_of(directory, model, *handlers, **options):
    optimizer = torch.optim.Adam([*model.parameters()], 1e-3)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    options = {"when": EACH, "keep": latest(9), "retries": 0, "resume": True} | options
    return engine.add(*handlers, Checkpoint(directory, **options))


def trained(directory, *handlers, model=None, iterations=3, change=None, **options):
    """A run that saves after each iteration; the model, and its states at the saves."""
    model = model or partly_frozen()
    engine, states = engine_of(directory, model, *handlers, **options), []
    engine.on(Events.ITERATION_STARTED)(engine.handlers["Checkpoint"].wait)
    if change is not None:
        engine.on(Events.ITERATION_STARTED(at=3))(lambda state: change(model))
    engine.on(EACH)(lambda state: states.append(copy.deepcopy(model.state_dict())))
    engine.run([BATCH] * iterations, max_epochs=1)
    return model, states


def numbers(directory, name=FROZEN, first=0):
    """For each checkpoint, the number of its file on the disk."""
    return [(each.path / name).stat().st_ino for each in checkpoints(directory)[first:]]


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def check(directory, states):
    """Each checkpoint is whole, and holds what the model was."""
    found = checkpoints(directory)
    assert len(found) == len(states)
    for saved, state in zip(found, states, strict=True):
        verify_files(saved)
        assert equal(saved.state_dict("model"), state)


@pytest.mark.quick(background=1)
@pytest.mark.parametrize("background", [True, False])
def test_frozen_weights_are_written_by_the_first_save_alone(tmp_path, background):
    _, states = trained(tmp_path, background=background)
    check(tmp_path, states)
    assert len({*numbers(tmp_path)}) == 1
    assert len({*numbers(tmp_path, "model.safetensors")}) == 3
    assert {*load_file(checkpoints(tmp_path)[0].path / FROZEN)} == {"0.weight", "0.bias"}


@pytest.mark.skipif(sys.platform != "linux", reason="counts the bytes by /proc")
def test_a_save_after_the_first_writes_the_trained_weights_and_the_optimizer_alone(tmp_path):
    model, count, written = partly_frozen(), [], []
    engine = engine_of(tmp_path, model)

    def note(state):
        engine.handlers["Checkpoint"].wait(state)
        with open("/proc/self/io") as file:
            count.append(int(file.read().split("wchar: ")[1].split()[0]))

    engine.on(Events.ITERATION_STARTED | Events.CLOSED)(note)
    engine.run([BATCH] * 4, max_epochs=1)
    written = [after - before for before, after in itertools.pairwise(count)]
    assert written[0] > 1_440_000
    assert all(each < 100_000 for each in written[1:4])


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[0].weight.data.add_(1),
        lambda model: model[0].weight.detach().numpy().__setitem__((599, 599), 7),
        lambda model: model[0].bias.data.view(torch.uint8)[-1].bitwise_xor_(1),
        lambda model: model[0].load_state_dict(nn.Linear(600, 600).state_dict()),
        lambda model: setattr(model[0], "weight", nn.Parameter(torch.ones(600, 600), False)),
    ],
    ids=["data", "numpy", "one bit", "load_state_dict", "another parameter"],
)
def test_frozen_weights_that_change_in_any_way_are_written(tmp_path, change):
    _, states = trained(tmp_path, change=change, iterations=4)
    check(tmp_path, states)
    first, second, third, fourth = numbers(tmp_path)
    assert first == second != third == fourth


@pytest.mark.slow
def test_a_weight_that_shares_its_memory_with_a_trained_one_is_saved_as_it_is(tmp_path):
    model = nn.Sequential(nn.Linear(600, 600, bias=False), nn.Linear(600, 600, bias=False))
    model.append(nn.Linear(600, 2))
    model[1].weight = nn.Parameter(model[0].weight.data, False)  # without its version counter
    twice = nn.Parameter(torch.ones(600, 600), False)
    model.register_parameter("one", twice)
    model.register_parameter("other", twice)
    _, states = trained(tmp_path, model=model)
    check(tmp_path, states)
    assert len({*numbers(tmp_path)}) == 3


@pytest.mark.slow
def test_a_module_that_is_not_trained_at_all_stays_one_file(tmp_path):
    teacher = nn.Linear(600, 600).requires_grad_(False)
    engine = engine_of(tmp_path, nn.Linear(600, 2))
    engine.objects["teacher"] = teacher
    engine.run([BATCH] * 3, max_epochs=1)
    assert len({*numbers(tmp_path, "teacher.safetensors")}) == 1
    assert not [*tmp_path.rglob("*frozen*")]
    last = checkpoints(tmp_path)[-1]
    assert equal(load_file(last.path / "teacher.safetensors"), teacher.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(("frozen", "trained_too"), [(300, 100), (600, 700)], ids=["small", "less"])
def test_few_frozen_weights_stay_in_the_file_of_the_module(tmp_path, frozen, trained_too):
    model = nn.Sequential(nn.Linear(600, frozen), nn.Linear(frozen, trained_too))
    model[0].requires_grad_(False)
    model.append(nn.Linear(trained_too, 2))
    _, states = trained(tmp_path, model=model, iterations=1)
    (saved,) = checkpoints(tmp_path)
    assert equal(load_file(saved.path / "model.safetensors"), states[0])


@pytest.mark.slow
def test_weights_that_thaw_move_to_the_file_that_is_written(tmp_path):
    def handlers():
        return Freeze("0.*", until=Events.ITERATION_STARTED(at=3))

    free = partly_frozen().requires_grad_(True)
    _, states = trained(tmp_path / "whole", handlers(), model=copy.deepcopy(free), iterations=5)
    check(tmp_path / "whole", states)
    held = [(each.path / FROZEN).exists() for each in checkpoints(tmp_path / "whole")]
    assert held == [True, True, False, False, False]
    for left_at in (2, 3):
        run = tmp_path / str(left_at)
        shutil.copytree(tmp_path / "whole", run)
        for saved in checkpoints(run)[left_at:]:
            Directory(saved.path.parent).drop(saved)
        model = copy.deepcopy(free)
        engine_of(run, model, handlers()).run([BATCH] * 5, max_epochs=1)
        assert equal(model.state_dict(), states[-1])


@pytest.mark.slow
def test_the_frozen_weights_of_an_average_are_shared_also_when_they_are_lent(tmp_path):
    model = partly_frozen()
    engine = engine_of(tmp_path, model, EMA(0.5))

    def save_while_lent(state):
        with engine.using({"model": "ema"}):
            state.save("lent")

    engine.on(EACH)(save_while_lent)
    engine.run([BATCH] * 4, max_epochs=1)
    assert len({*numbers(tmp_path)}) == 1
    assert len({*numbers(tmp_path, "ema.frozen.safetensors")}) == 1
    last = checkpoints(tmp_path)[-1]
    assert equal(last.state_dict("model"), model.state_dict())
    average = engine.objects["ema"].state_dict()
    assert equal(last.state_dict("ema"), average)
    assert not torch.equal(average["1.weight"], model[1].weight)


@pytest.mark.quick(code=1)
@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP])
def test_where_the_file_system_has_no_second_names_all_is_written(tmp_path, monkeypatch, code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    _, states = trained(tmp_path)
    check(tmp_path, states)
    assert len({*numbers(tmp_path)}) == 3


def shorten(path):
    os.truncate(path, 99)


def lengthen(path):
    os.truncate(path, path.stat().st_size + 1)


def damage(path):
    """Change one byte, and nothing that a look at the directory would show."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(700_000)
        byte = file.read(1)[0]
        file.seek(700_000)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.quick(act=1)
@pytest.mark.parametrize("act", [damage, os.unlink, shorten, lengthen])
def test_a_file_that_is_no_longer_as_it_was_written_is_written_anew(tmp_path, act):
    def spoil(model):
        act(checkpoints(tmp_path)[-1].path / FROZEN)

    _, states = trained(tmp_path, change=spoil, iterations=4)
    assert len({*numbers(tmp_path, first=2)}) == 1
    for saved, state in zip(checkpoints(tmp_path)[2:], states[2:], strict=True):
        verify_files(saved)
        assert equal(saved.state_dict("model"), state)


@pytest.mark.slow
def test_a_checkpoint_that_somebody_removes_is_not_missed(tmp_path):
    def remove(model):
        shutil.rmtree(checkpoints(tmp_path)[-1].path)

    _, states = trained(tmp_path, change=remove, iterations=4)
    check(tmp_path, [states[0], *states[2:]])


@pytest.mark.slow
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path):
    def replace(model):
        path = checkpoints(tmp_path)[-1].path / FROZEN
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")

    trained(tmp_path, change=replace, iterations=4)
    third, fourth = (each.path / FROZEN for each in checkpoints(tmp_path)[2:])
    assert not third.is_symlink()
    assert third.stat().st_ino == fourth.stat().st_ino != (tmp_path / "elsewhere").stat().st_ino


@pytest.mark.slow
def test_the_first_save_of_a_run_that_goes_on_shares_with_the_last_one_of_the_run_before(tmp_path):
    trained(tmp_path, iterations=2)
    model = partly_frozen()
    engine_of(tmp_path, model).run([BATCH] * 2, max_epochs=2)
    assert len(checkpoints(tmp_path)) == 4
    assert len({*numbers(tmp_path)}) == 1
    assert equal(checkpoints(tmp_path)[-1].state_dict("model"), model.state_dict())


@pytest.mark.slow
def test_a_second_save_of_an_iteration_shares_the_files_of_the_one_whose_place_it_takes(tmp_path):
    twice = EACH | Events.EPOCH_COMPLETED
    _, states = trained(tmp_path, iterations=1, when=twice)
    check(tmp_path, states)
    assert (checkpoints(tmp_path)[0].path / FROZEN).stat().st_nlink == 1  # the other one is gone


STEPS = ("train", "data", "load", "thaw", "freeze", "nothing")


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.sampled_from(STEPS), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_checkpoints_dropped_in_any_order_leave_the_others_as_they_were(
    tmp_path_factory, steps, chance
):
    directory, model, states = tmp_path_factory.mktemp("run"), partly_frozen(), []
    acts = {
        "train": lambda: None,
        "data": lambda: model[0].weight.data.mul_(2),
        "load": lambda: model.load_state_dict(copy.deepcopy(model.state_dict())),
        "thaw": lambda: model[0].requires_grad_(True),
        "freeze": lambda: model[0].requires_grad_(False),
        "nothing": lambda: None,
    }
    engine = engine_of(directory, model)
    engine.on(Events.ITERATION_STARTED)(lambda state: acts[steps[state.iteration - 1]]())
    engine.on(EACH)(lambda state: states.append(copy.deepcopy(model.state_dict())))
    engine.run([BATCH] * len(steps), max_epochs=1)
    left = dict(zip((each.path for each in checkpoints(directory)), states, strict=True))
    check(directory, states)
    for saved in chance.sample(checkpoints(directory), len(steps)):
        Directory(saved.path.parent).drop(saved)
        del left[saved.path]
        check(directory, [*left.values()])


def test_readers_find_the_weights_of_both_files(tmp_path, camshaft):
    model, _ = trained(tmp_path, EMA(0.5), iterations=2)
    last = checkpoints(tmp_path)[-1]
    for source in (tmp_path, last.path, last.path / "model.safetensors"):
        into = partly_frozen()
        for each in into.parameters():
            each.data.zero_()
        report = load_matching(into, source)
        assert equal(into.state_dict(), model.state_dict()), source
        assert len(report.loaded) == 4
    code, lines, _ = camshaft("inspect", last.path)
    assert code == 0
    (row,) = [line.split() for line in lines if line.startswith("model ")]
    assert row == ["model", "4", "361,802", "1,447,208", "float32", "model*.safetensors"]
    for suffix, read in ((".safetensors", load_file), (".pt", torch.load)):
        camshaft("export", tmp_path, tmp_path / f"model{suffix}", "--object", "model")
        assert equal(read(tmp_path / f"model{suffix}"), model.state_dict())


@pytest.mark.slow
def test_an_export_is_one_file_that_loads_alone(tmp_path):
    model, _ = trained(tmp_path / "run", Export(tmp_path / "export"))
    (saved,) = checkpoints(tmp_path / "export")
    assert equal(load_file(saved.path / "model.safetensors"), model.state_dict())


@pytest.mark.slow
def test_what_is_shared_counts_once_and_is_freed_with_the_last_checkpoint(tmp_path, camshaft):
    trained(tmp_path)
    _, lines, _ = camshaft("inspect", tmp_path)
    assert "3 checkpoints, 0 broken, 1.6 MB" in lines[0]
    _, lines, _ = camshaft("prune", tmp_path, "--keep", "latest(1)", "--dry-run")
    assert lines[-1].startswith("2 would be dropped, ")
    assert lines[-1].endswith(" kB")
    _, lines, _ = camshaft("prune", tmp_path, "--keep", "latest(1)")
    assert lines[-1].endswith(" kB")
    (saved,) = checkpoints(tmp_path)
    verify_files(saved)


@pytest.mark.slow
def test_a_stripped_checkpoint_shares_the_files_that_it_keeps(tmp_path):
    _, states = trained(tmp_path)
    before = numbers(tmp_path)
    strip_to_weights(checkpoints(tmp_path)[0])
    assert numbers(tmp_path) == before
    check(tmp_path, states)


@pytest.mark.slow
def test_an_object_whose_name_ends_like_a_file_of_frozen_weights_is_read_as_its_own(tmp_path):
    objects = {"model": partly_frozen(), "model.frozen": nn.Linear(2, 2)}
    engine = Engine(lambda state, batch: None, objects=objects)
    engine.add(Checkpoint(tmp_path, when=EACH)).run([1], max_epochs=1)
    saved = checkpoints(tmp_path).latest()
    for name, own in objects.items():
        assert equal(saved.state_dict(name), own.state_dict()), name
