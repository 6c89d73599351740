"""What a place of the script holds: another object, another form, or nothing any more."""

import argparse
import random
import warnings
from array import array
from collections import OrderedDict, UserDict, deque
from decimal import Decimal
from enum import Enum
from threading import local
from types import SimpleNamespace
from weakref import WeakValueDictionary

import numpy as np
import pandas
import pytest
import torch
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, checkpoints
from camshaft.handlers.checkpoint.directory.strip import strip_to_weights

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))


class Phase(Enum):
    WARM, MAIN = 1, 2


class Stage:
    def __init__(self, gain):
        self.gain = gain


class Rows(list):
    best = 0.0


class Table(dict):
    pass


class Numbers(torch.Tensor):
    pass


class Recent(deque):
    pushed = 0.0

    def push(self, value):
        self.pushed += 1
        self.append(value)


class Drawing(random.Random):
    calls = 0

    def draw(self):
        self.calls += 1
        return self.random() + self.calls


def half(loss):
    return loss / 2


def twice(loss):
    return loss * 2


def tripled(x):
    return x * 3


def cut_off(s):
    s.one = [*s.one]
    s.two.append(3.0)


def swap(s):
    s.now, s.other = s.other, s.now


CHANGES = {
    "a set of weights": lambda s: s.frozen.add(s.model[1].weight),
    "a set of modules": lambda s: s.parts.discard(s.model[0]),
    "one of many weights": lambda s: s.many.__setitem__(7, s.model[1].bias),
    "one of many rows": lambda s: s.rows[7].append(1.0),
    "one of more rows": lambda s: s.more[7].append(1.0),
    "out of a list with other things": lambda s: s.box.pop(),
    "into a list with other things": lambda s: s.stages.append(s.first),
    "out of a dict with other things": lambda s: s.table.pop("twice"),
    "into a dict with other things": lambda s: s.table.update(thrice=1),
    "an attribute": lambda s: delattr(s, "extra"),
    "two tensors that change places": swap,
    "another module": lambda s: setattr(s, "part", s.model[1]),
    "another object": lambda s: setattr(s, "stage", s.stages[1]),
    "another object for None": lambda s: setattr(s, "late", s.stages[1]),
    "another function": lambda s: setattr(s, "scale", twice),
    "another member of an enum": lambda s: setattr(s, "phase", Phase.MAIN),
    "a number of NumPy": lambda s: setattr(s, "gain", np.mean([s.gain, 3.0])),
    "numbers of NumPy": lambda s: s.gains.update(a=s.gains["a"] + 1),
    "argparse": lambda s: setattr(s.args, "scale", s.args.scale + 1),
    "a UserDict": lambda s: s.user.update(scale=3.0),
    "a new key that is a member of an enum": lambda s: s.counts.update({Phase.MAIN: 3}),
    "a set of members of an enum": lambda s: s.phases.add(Phase.MAIN),
    "an object that has a class for its key": lambda s: setattr(s.by_class[Stage], "gain", 3.0),
    "an object that has a weight for its key": lambda s: setattr(s.by_weight(), "gain", 3.0),
    "one of a hundred objects": lambda s: setattr(s.crowd[77], "gain", 3.0),
    "one of a hundred attributes": lambda s: setattr(s.args, "a99", 3.0),
    "a list of a class of its own": lambda s: (s.own.append(2.0), setattr(s.own, "best", 2.0)),
    "a deque of a class of its own": lambda s: s.recent.push(2.0),
    "an object that is held weakly": lambda s: setattr(s.weak["stage"], "gain", 3.0),
    "bytes": lambda s: s.bytes.append(2),
    "bytes that are seen elsewhere": lambda s: s.view.__setitem__(0, 2),
    "an array of Python": lambda s: s.array.append(2.0),
    "an array of NumPy with a mask": lambda s: s.masked.__setitem__(1, 3.0),
    "a tensor of a class of its own": lambda s: s.numbers.add_(1),
    "a new key of a dict of a class of its own": lambda s: s.mine.update({1: 2.0}),
    "a dict in another order": lambda s: s.order.move_to_end("a"),
    "an attribute of a thread": lambda s: setattr(s.thread, "gain", 2.0),
    "one of three places of a list": cut_off,
    "a list that comes to another place": lambda s: (setattr(s, "four", s.one), s.one.append(2.0)),
    "the forward of a module": lambda s: setattr(s.act, "forward", tripled),
    "what the script gives to an optimizer": lambda s: setattr(s.optimizer, "gain", 2.0),
    "an object of a module of torch": lambda s: setattr(s.model[0].stage, "gain", 2.0),
    "a generator that only a method knows": lambda s: s.draw(),
    "torch's threads": lambda s: torch.set_num_threads(torch.get_num_threads() + 1),
}


def script(change, directory, epochs):
    """One start of a script that makes a change in epoch 2; its weights at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    s = SimpleNamespace(model=model, frozen={model[0].weight}, parts={model[0], model[1]})
    s.many, s.rows, s.more = [model[0].bias] * 400, [[1.0] for _ in range(300)], {}
    s.more.update({n: [1.0] for n in range(1500)})
    s.box, s.table = [0, model, 1], {"model": model, "twice": 1}
    s.first = Stage(1.0)
    s.stages, s.late, s.stage, s.scale = [s.first, Stage(3.0)], None, s.first, half
    s.extra, s.now, s.other, s.part = 1, torch.ones(2), torch.zeros(2), model[0]
    s.names = {"now": s.now, "other": s.other}
    s.phase, s.gain, s.gains = Phase.WARM, 1.0, {"a": np.float64(1)}
    s.args = argparse.Namespace(scale=1.0, **{f"a{n}": 1.0 for n in range(100)})
    s.user, held = UserDict(scale=1.0), Stage(1.0)
    s.counts, s.phases, s.by_class = {Phase.WARM: 1}, {Phase.WARM}, {Stage: Stage(1.0)}
    s.of_weights = {each: Stage(1.0) for each in model.parameters()}
    s.by_weight = lambda: s.of_weights[model[1].weight]
    s.crowd, s.weak = [Stage(1.0) for _ in range(100)], WeakValueDictionary(stage=held)
    s.own, s.recent = Rows([1.0]), Recent([1.0], maxlen=5)
    s.drawing = Drawing(1)
    s.bytes, s.array, s.masked = (
        bytearray(b"\1"),
        array("d", [1.0]),
        np.ma.array([1, 2], mask=[0, 1]),
    )
    s.numbers, s.mine, s.order = torch.ones(2).as_subclass(Numbers), Table(), OrderedDict(a=1, b=2)
    s.seen, s.thread, s.one, s.four, s.act = bytearray(b"\1"), local(), [1.0], [1.0], nn.Identity()
    s.view, s.two, s.three, s.thread.gain = memoryview(s.seen), s.one, s.one, 1.0
    torch.set_num_threads(1)
    s.optimizer = optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model[0].stage = Stage(1.0)
    optimizer.gain, s.draw = 1.0, random.Random(2).random

    def step(state, batch):
        loss = model(batch).square().mean() + s.part.weight.square().sum() / 9
        loss = s.scale(loss) * (len(s.box) + len(s.table) + 2 * ("twice" in s.table))
        loss = loss * (1 + len(s.rows[7]) + len(s.more[7]) + hasattr(s, "extra"))
        loss = loss * (1 + s.now.sum() + s.stage.gain + (s.late or s.first).gain + s.phase.value)
        loss = loss * float(s.gain * s.gains["a"]) * s.args.scale * s.user["scale"]
        loss = loss * sum(each.gain for each in s.stages) * s.drawing.draw()
        loss = loss * sum(s.counts.values()) * len(s.phases) * s.by_class[Stage].gain
        loss = loss * s.by_weight().gain * s.crowd[77].gain * s.args.a99 * s.weak["stage"].gain
        loss = loss * (sum(s.own) + s.own.best) * (sum(s.recent) + s.recent.pushed)
        loss = loss * sum(s.bytes) * s.seen[0] * sum(s.array) * int(s.masked.sum()) * s.thread.gain
        first, *_ = s.order.values()
        loss = s.act(loss) * s.numbers.sum().item() * (1 + len(s.mine)) * first
        s.three.append(s.three[-1] / 2)
        loss = loss * sum(s.one + s.two + s.four) * torch.get_num_threads()
        loss = loss * optimizer.gain * s.draw() * model[0].stage.gain
        (loss / 1e7).backward()
        used = {id(each) for each in s.many}
        for part in model:
            is_still = part not in s.parts
            for each in part.parameters():
                if is_still or each in s.frozen or id(each) in used:
                    each.grad = None
        optimizer.step()
        optimizer.zero_grad()
        if state.iteration == 3:
            CHANGES[change](s)
            assert half or twice or tripled or Phase.MAIN

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    engine.add(Checkpoint(directory, resume=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run([X, X], max_epochs=epochs)
    return [each.tolist() for each in model.state_dict().values()]


@pytest.mark.quick(change=4)
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_place_holds_is_part_of_the_run(tmp_path, change):
    whole = script(change, tmp_path / "whole", 4)
    script(change, tmp_path / "left", 2)
    assert script(change, tmp_path / "left", 4) == whole


@pytest.mark.parametrize("left", [1, 2])
def test_a_variable_and_attributes_of_a_class_that_the_run_makes_go_on(tmp_path, left):
    def start(directory, epochs):
        class Tracker:
            calls = 0.0

            def smooth(self, loss):
                kind = type(self)
                kind.calls += 1
                if not hasattr(kind, "average"):
                    kind.average = loss
                kind.average = 0.9 * kind.average + 0.1 * loss
                return kind.average + kind.calls

        tracker, model = Tracker(), nn.Linear(3, 1, bias=False)
        model.weight.data.fill_(1.0)
        globals().pop("RUNNING", None)

        def step(state, batch):
            global RUNNING  # noqa: PLW0603  as scripts do
            loss = model(batch).square().mean()
            try:
                RUNNING = 0.9 * RUNNING + 0.1 * loss.item()
            except NameError:
                RUNNING = loss.item()
            (loss / (RUNNING + tracker.smooth(loss.item()))).backward()
            model.weight.data -= 0.1 * model.weight.grad
            model.weight.grad = None

        engine = Engine(step, objects={"model": model})
        engine.add(Checkpoint(directory, resume=True, when=Events.ITERATION_COMPLETED))
        engine.run([X, X + 1, X + 2], max_epochs=epochs)
        return model.weight.tolist(), tracker.average, Tracker.calls, RUNNING

    whole = start(tmp_path / "whole", 3)
    start(tmp_path / "left", left)
    assert start(tmp_path / "left", 3) == whole


def told(change, tmp_path, holder, data=None):
    """What is said of a run in which a function makes a change of a holder in iteration 3."""

    def step(state, batch):
        if state.iteration == 3:
            change(holder)

    engine = Engine(step, Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run(data or [1, 2], max_epochs=2)
    return [str(each.message) for each in caught]


OTHERS = [
    (1j, lambda value: value * 2),
    (frozenset({1}), lambda value: value | {2}),
    (range(2), lambda value: range(len(value) + 1)),
    (Decimal(1), lambda value: value / 3),
    (bytearray(1), lambda value: value + b"a"),
    (np.ma.array([1.0]), lambda value: value + 1),
    (torch.ones(1).as_subclass(Numbers), lambda value: value + 1),
    (Table(a=1), lambda value: Table(a=2)),
    (pandas.DataFrame({"a": [1]}), lambda value: value + 1),
]


@pytest.mark.parametrize(("value", "change"), OTHERS)
def test_a_value_that_a_checkpoint_cannot_hold_is_told_of(tmp_path, value, change):
    holder = SimpleNamespace(value=value)
    (said,) = told(lambda each: setattr(each, "value", change(each.value)), tmp_path, holder)
    assert f"holder.value (now another {type(value).__name__})" in said


TABLES = [
    (pandas.DataFrame({"a": [1], "b": [[1, 2]]}), lambda table: table.at.__setitem__((0, "a"), 2)),
    (pandas.Series(range(9)), lambda table: table.__setitem__(0, 2)),
    (np.array([1, [2]], dtype=object), lambda table: table[1].append(3)),
]


@pytest.mark.parametrize(("table", "change"), TABLES)
def test_a_table_that_the_run_writes_into_is_told_of(tmp_path, table, change):
    (said,) = told(lambda holder: change(holder.rows), tmp_path, SimpleNamespace(rows=table))
    assert "holder.rows[:] (of a class that no checkpoint holds)" in said


def test_a_table_that_functions_only_fill_is_a_record(tmp_path):
    table = pandas.DataFrame({"loss": [0.0] * 9})

    def step(state, batch):
        table.loc[state.iteration] = batch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Engine(step, Checkpoint(tmp_path)).run([1, 2], max_epochs=2)


class Chunks(torch.utils.data.Dataset):
    """Numbers by chunks, of which it keeps the last one that it has read, and which one that is."""

    def __init__(self, read):
        self.read, self.number, self.chunk = read, None, None

    def __len__(self):
        return 12

    def __getitem__(self, place):
        if self.number != place // 6:
            self.number = place // 6
            self.chunk = self.read(place // 6)
        return self.chunk.gain + place


def test_a_chunk_that_no_checkpoint_holds_is_read_again_after_a_resume(tmp_path):
    def start(fails):
        def step(state, batch):
            values.append(batch.tolist())
            if state.iteration == fails:
                raise KeyboardInterrupt

        values, engine = [], Engine(step)
        engine.add(Checkpoint(tmp_path, resume=True, when=Events.ITERATION_COMPLETED))
        engine.run(torch.utils.data.DataLoader(Chunks(Stage), 2), max_epochs=2)
        return values

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            start(5)
        places = [[8, 9], [10, 11], *([n, n + 1] for n in range(0, 12, 2))]
        assert start(0)[-8:] == [[n + n // 6 for n in pair] for pair in places]


class Counted(torch.utils.data.Dataset):
    """Numbers with a count that begins again, and an object that no checkpoint holds."""

    def __init__(self):
        self.count, self.latest = 0, None

    def __len__(self):
        return 3

    def __getitem__(self, place):
        self.count += 1
        if self.count == 4:
            self.count = 0
        self.latest = Stage(place)
        return self.count


@pytest.mark.parametrize("is_step", [False, True])
def test_a_count_that_is_compared_beside_a_new_object_goes_on(tmp_path, is_step):
    def start(epochs):
        def step(state, batch):
            counts.append(counted[0] if is_step else batch.item())

        counts, counted, engine = [], Counted(), Engine(step)
        engine.add(Checkpoint(tmp_path, resume=True))
        data = range(3) if is_step else torch.utils.data.DataLoader(counted)
        engine.run(data, max_epochs=epochs)
        return counts

    assert start(2) + start(4) == [1, 2, 3, 0] * 3


def test_a_list_of_a_class_of_its_own_that_one_name_fills_and_another_reads(tmp_path):
    def start(epochs):
        rows = Rows()
        holder = SimpleNamespace(rows=rows)

        def step(state, batch):
            rows.append(batch)
            totals.append(sum(holder.rows))

        totals, engine = [], Engine(step, Checkpoint(tmp_path, resume=True))
        engine.run([1, 2], max_epochs=epochs)
        return totals

    assert start(1) + start(2) == [1, 3, 4, 6]


def test_a_hook_that_each_process_makes_in_started_is_no_change(tmp_path):
    model = nn.Linear(3, 1)
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path), objects={"model": model})
    engine.on(Events.STARTED)(lambda state: model.register_forward_hook(half))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run([1, 2], max_epochs=2)


def test_settings_of_torch_that_cannot_be_put_back_are_told_of(tmp_path):
    torch.set_float32_matmul_precision("highest")
    try:
        (said,) = told(torch.set_float32_matmul_precision, tmp_path, "high")
    finally:
        torch.set_float32_matmul_precision("highest")
    assert "torch.backends.cuda.matmul.fp32_precision (tf32 instead of " in said


def test_an_object_in_a_set_is_told_of_since_another_process_has_another_order(tmp_path):
    stages = {Stage(1.0), Stage(2.0)}
    (said,) = told(lambda each: setattr(next(iter(each)), "gain", 3.0), tmp_path, stages)
    assert "holder[#0].gain (of an element of a set, which comes in another order" in said


def test_an_optimizer_for_each_weight_in_the_backward_pass_is_told_of(tmp_path):
    model = nn.Linear(3, 1)
    optimizers = {each: torch.optim.Adam([each], foreach=False) for each in model.parameters()}
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(lambda weight: optimizers[weight].step())
    engine = Engine(lambda state, batch: model(X).square().mean().backward())
    engine.objects["model"] = model
    with pytest.warns(UserWarning, match=r"changes \[\*optimizers.values\(\)\]\[0\] \(Adam\), "):
        engine.add(Checkpoint(tmp_path)).run([1], max_epochs=1)


def test_a_state_dict_that_gives_a_list_is_refused(tmp_path):
    pair = SimpleNamespace(state_dict=lambda: [{}, {}], load_state_dict=lambda given: None)
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path), objects={"pair": pair})
    with pytest.raises(OSError, match=r"state_dict\(\) of \['pair'\] has to give a dict"):
        engine.run([1], max_epochs=1)


def test_an_array_of_records_is_told_of(tmp_path):
    holder = SimpleNamespace(rows=np.zeros(2, dtype=[("x", float), ("n", int)]))
    (said,) = told(lambda holder: holder.rows["n"].fill(1), tmp_path, holder)
    assert "holder.rows (an array of [('x', '<f8'), ('n', '<i8')])" in said


def test_a_module_that_takes_the_place_of_a_shared_one_is_told_of(tmp_path):
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["now"] = model["a"]

    def step(state, batch):
        if state.iteration == 1:
            model["now"] = model["b"]

    engine = Engine(step, Checkpoint(tmp_path), objects={"model": model})
    with pytest.warns(UserWarning, match="model.now"):
        engine.run([1], max_epochs=1)


def test_a_large_state_dict_that_the_script_holds_is_no_change(tmp_path):
    model = nn.Linear(2100, 2000)  # more than a changed value may have
    held = model.state_dict()

    def step(state, batch):
        with torch.no_grad():
            model.weight[0] += held["weight"][1]

    engine = Engine(step, Checkpoint(tmp_path), objects={"model": model})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run([1], max_epochs=1)


def test_a_step_that_writes_into_a_list_s_batches_after_the_first_save_is_told_of(tmp_path, caplog):
    data = [torch.ones(3), torch.ones(3)]

    def step(state, batch):
        if state.iteration > 2:
            batch.add_(1)

    Engine(step, Checkpoint(tmp_path)).run(data, max_epochs=3)
    assert caplog.text.count("writes into the batches of a list") == 1


def test_an_object_that_is_not_in_the_script_any_more_is_named(tmp_path, caplog):
    def run(epochs, count):
        stages = [Stage(1.0), Stage(2.0)][:count]
        holder = SimpleNamespace(now=stages[0])

        def step(state, batch):
            holder.now = stages[-1]

        Engine(step, Checkpoint(tmp_path, resume=True)).run([1], max_epochs=epochs)

    run(1, 2)
    run(2, 1)
    assert "holder.now was stages[1], which is not in this script" in caplog.text


def test_a_resume_from_weights_alone_says_how_a_new_run_begins_with_them(tmp_path):
    model = nn.Linear(2, 1)
    engine = Engine(lambda state, batch: None, objects={"model": model})
    engine.add(Checkpoint(tmp_path)).run([1], max_epochs=1)
    strip_to_weights(checkpoints(tmp_path).latest())
    again = Engine(lambda state, batch: None, objects={"model": model})
    with pytest.raises(ValueError, match=r"load_matching\(model, '.*iteration-0000000001'\)"):
        again.add(Checkpoint(tmp_path, resume=True)).run([1], max_epochs=2)
