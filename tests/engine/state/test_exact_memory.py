"""A memory is put back equal, of equal types and in place; what cannot be is refused when saved."""

import ast
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from camshaft import Engine, Events, State
from camshaft.engine.state import RunControl
from camshaft.handlers import Checkpoint, latest
from camshaft.handlers.checkpoint.format import Encoder, decode
from camshaft.handlers.files import text_of, tree_of


def step(state, batch):
    return None


def other(state):
    return None


def new_state(**objects):
    return State(control=RunControl(engine=Engine(step, objects=objects)))


def written(state):
    """The state as a checkpoint holds it, and as it comes back."""
    encoder = Encoder(once=True)
    text = text_of(encoder.encode(state.state_dict(), "run.0")).encode()
    tensors = {name: each.clone() for name, each in encoder.tensors.items()}
    return decode(tree_of(text), tensors)


def resumed(state, make):
    """What a new process recalls of the memory in this state."""
    again = new_state()
    again.load_state_dict(written(state))
    return again.recall(step, make)


def put_back(memory, make):
    """What a new process recalls of a memory; `make` is what it is made by there."""
    state = new_state()
    made = make()
    assert state.recall(step, lambda: made) is made
    fill(made, memory)
    fresh = make()
    assert resumed(state, lambda: fresh) is fresh
    return fresh


def fill(made, memory):
    """Give a memory the content of another one, as a run would."""
    if isinstance(memory, dict):
        for key in list(made):
            del made[key]
        for key, value in memory.items():
            made[key] = value
    elif is_dataclass(memory):
        for item in fields(memory):
            object.__setattr__(made, item.name, getattr(memory, item.name))


def same(a, b):
    """Equal to the last bit, of equal types all the way down, in the same order; NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape, a.device, a.requires_grad) == (
            *(b.dtype, b.shape, b.device),
            b.requires_grad,
        ) and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, set | frozenset):
        return a == b and sorted(map(repr, a)) == sorted(map(repr, b))
    if is_dataclass(a):
        return all(same(getattr(a, item.name), getattr(b, item.name)) for item in fields(a))
    return a == b


TEXTS = st.text(st.characters(exclude_categories=()), max_size=5)  # lone halves of characters too
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=5)
) | st.sampled_from([-0.0, 10**400, -(10**4300) + 1, "!tensor", np.float32(1.5), np.int16(3)])
KEYS = SCALARS | st.tuples(SCALARS, SCALARS) | st.sampled_from([0, 0.0, False, 1, True, 1.0])
ARRAYS = st.sampled_from([np.float32, np.int64, np.uint16, np.bool_, np.complex64]).flatmap(
    lambda dtype: st.lists(st.integers(0, 9), max_size=4).map(lambda each: np.array(each, dtype))
)
NUMBERS = torch.tensor([math.nan, math.inf, -0.0, 1 / 3, 1e-40, -7.0], dtype=torch.float64)
DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8]
TENSORS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: st.sampled_from([(), (0,), (2, 3), (1, 0, 2)]).map(
        lambda shape: NUMBERS[: math.prod(shape)].reshape(shape).to(dtype)
    )
)


def nested(inner):
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(KEYS, inner, max_size=4).map(Counter)
        | st.lists(inner, max_size=3).map(deque)
        | st.lists(inner, max_size=3).map(lambda each: deque(each, maxlen=3))
        | st.dictionaries(TEXTS, inner, max_size=2).map(lambda each: defaultdict(list, each))
    )


VALUES = st.recursive(SCALARS | ARRAYS | TENSORS, nested, max_leaves=8)
CONTENTS = st.dictionaries(KEYS, VALUES, max_size=5)
TABLES = [
    dict,
    OrderedDict,
    Counter,
    lambda: defaultdict(list),
    lambda: {"there": 1, 2: [3]},
    lambda: OrderedDict(there=1, more=2),
    lambda: Counter(there=5, more=2),
]


@dataclass
class Fields:
    one: Any = None
    two: Any = field(default_factory=lambda: [1, 2])


@dataclass(frozen=True)
class Frozen:
    one: Any = None
    two: Any = field(default_factory=dict)


@dataclass(slots=True)
class Slots:
    one: Any = 3
    two: Any = None


ODD_INSIDE = "side by side|equals no copy|would be two"


def accepted(put_back, *given):
    """What is put back; None if the save refuses it, which it may not do for other values."""
    try:
        return put_back(*given)
    except TypeError as refusal:
        if not re.search(ODD_INSIDE, str(refusal)):
            raise
        return None


@given(CONTENTS, st.sampled_from(TABLES))
def test_every_dict_that_a_save_takes_is_put_back_equal(content, make):
    if (again := accepted(put_back, content, make)) is None:
        return
    assert type(again) is type(make())
    assert same(list(again.items()), list(content.items()))
    assert getattr(again, "default_factory", None) is getattr(make(), "default_factory", None)


@given(VALUES, VALUES, st.sampled_from([Fields, Frozen, Slots]))
def test_every_dataclass_that_a_save_takes_is_put_back_equal(one, two, make):
    if (again := accepted(put_back, make(one, two), make)) is not None:
        assert same(again, make(one, two))


def test_fields_are_saved_in_their_order():
    state = new_state()
    state.recall(step, Fields)
    assert [*written(state)["memory"]["engine.process"]] == ["one", "two"]


def test_a_dict_of_an_own_class_is_put_back_whatever_its_methods_do():
    class Doubled(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, 2 * value)

    again = put_back({"a": 1}, Doubled)
    assert (type(again), again) == (Doubled, {"a": 2})


class Meter:
    def __init__(self):
        self.total = 0

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, saved):
        self.total = saved["total"]


@dataclass(frozen=True)
class Meters:
    first: Meter = field(default_factory=Meter)
    note: Any = None


@pytest.mark.parametrize(
    "make", [Meters, lambda: {"first": Meter(), "note": None}], ids=["fields", "entries"]
)
def test_an_object_with_a_state_stays_the_object_that_the_memory_was_made_with(make):
    state, memory = new_state(), make()
    state.recall(step, lambda: memory)
    (memory["first"] if isinstance(memory, dict) else memory.first).total = 7
    fresh = make()
    own = fresh["first"] if isinstance(fresh, dict) else fresh.first
    resumed(state, lambda: fresh)
    assert (fresh["first"] if isinstance(fresh, dict) else fresh.first) is own
    assert own.total == 7


def test_an_object_that_was_deleted_from_a_dict_is_not_there_again():
    state = new_state()
    del state.recall(step, lambda: {"a": Meter(), "b": 1})["a"]
    assert resumed(state, lambda: {"a": Meter(), "b": 2}) == {"b": 1}


def refused(change, make=dict, **objects):
    """What is said of a memory when the run is saved, after `change` has changed it."""
    state = new_state(**objects)
    change(state.recall(step, make))
    with pytest.raises(TypeError) as caught:
        written(state)
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (Fields, lambda memory: setattr(memory, "one", Meter())),
        (lambda: Fields(Meter()), lambda memory: setattr(memory, "one", None)),
        (dict, lambda memory: memory.update(one=Meter())),
        (lambda: {"one": Meter()}, lambda memory: memory.update(one=torch.nn.Linear(1, 1))),
    ],
    ids=["came", "went", "came into a dict", "is another one"],
)
def test_an_object_that_a_new_memory_does_not_have_is_refused_when_it_is_saved(make, change):
    said = refused(change, make)
    assert said.startswith("what engine.process remembers cannot be saved: 'one' is ")
    assert "Make it together with the memory, or remember its state_dict() instead" in said


def test_a_lazy_module_may_become_a_module():
    state = new_state()
    memory = state.recall(step, lambda: Fields(torch.nn.LazyLinear(2)))
    memory.one(torch.ones(1, 3))
    found = resumed(state, lambda: Fields(torch.nn.LazyLinear(2)))
    assert torch.equal(found.one.weight, memory.one.weight)


class Level(IntEnum):
    LOW = 1


class Words(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")


ODD = [
    *(defaultdict(lambda: 0), defaultdict(None), Pair(1, 2), Level.LOW, Words("x"), Fields()),
    *(1j, bytearray(b"x"), object(), Meter, [[Meter()]], {"a": {"b": Meter()}}),
    *(np.datetime64("2020"), np.longlong(1), np.array(["x"]), np.ones(2, ">f4")),
    *(
        10**4300,
        -(10**4300),
        {10**5000: [torch.ones(1)]},
        {(math.nan, 10**5000)},
        {math.nan},
        {(1, (math.nan,)): 2},
        {np.float32("nan")},
    ),
    *("\ud83d\ude00", {"\ud83d\ude00": 1}, {torch.ones(1)}, {torch.ones(1): 1}),
    torch.nn.Parameter(torch.ones(1), requires_grad=False),
    torch.ones(1, requires_grad=True),
    *(torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2).cdouble()),
]


@pytest.mark.parametrize(
    ("value", "kind"),
    list(zip(ODD, cycle(["an entry", "a field", "inside"]), strict=False)),
    ids=map(str, range(len(ODD))),
)
def test_what_would_come_back_as_something_else_is_refused_when_it_is_saved(value, kind):
    changes = {
        "an entry": lambda memory: memory.update(odd=value),
        "a field": lambda memory: setattr(memory, "one", value),
        "inside": lambda memory: memory.update(odd=[(1, value)]),
    }
    said = refused(changes[kind], Fields if kind == "a field" else dict)
    assert "engine.process" in said


def test_a_value_that_contains_itself_is_refused():
    itself = []
    itself.append(itself)
    assert "odd.0 and engine.process.odd are one list" in refused(
        lambda memory: memory.update(odd=itself)
    )
    deep = [1]
    for _ in range(2000):
        deep = [deep]
    assert "nests too deep" in refused(lambda memory: memory.update(odd=deep))
    state = new_state()
    state.metrics["odd"] = itself
    with pytest.raises(TypeError, match=r"run\.0\.metrics\.values\.odd.*contains itself"):
        written(state)


class Sized(dict):
    def __init__(self):
        self.size = 3


def test_attributes_that_are_no_content_are_refused():
    assert "attributes besides its content, 'size'" in refused(lambda memory: None, Sized)
    assert "'extra'" in refused(lambda memory: setattr(memory, "extra", 1), Fields)


def test_a_field_without_a_value_is_refused():
    @dataclass
    class Later:
        one: int = field(init=False)

    assert "the fields 'one' have no value" in refused(lambda memory: None, Later)
    state = new_state()
    state.recall(step, Later).one = 3
    assert resumed(state, Later).one == 3


def shared(make):
    """What is said when this is in two memories, twice in one, and once inside the other."""

    def within(value):
        return refused(lambda memory: memory.update(a=value, b=(1, value)))

    def between(value):
        state = State(control=RunControl(engine=Engine(step)))
        state.control.engine.on(Events.STARTED)(other)
        state.recall(step, dict)["a"] = value
        state.recall(other, dict)["b"] = [value]
        with pytest.raises(TypeError) as caught:
            written(state)
        return str(caught.value)

    return within(make()), between(make())


@pytest.mark.parametrize(
    "make",
    [lambda: [1], dict, lambda: {1}, Counter, lambda: np.ones(2)],
    ids=["list", "dict", "set", "Counter", "array"],
)
def test_what_would_be_two_after_a_resume_is_refused(make):
    kind = type(make()).__name__
    within, between = shared(make)
    assert f"engine.process.b.1 and engine.process.a are one {kind}, and after a" in within
    assert f"other().b.0 and engine.process.a are one {kind}, and after a" in between


def test_one_dict_as_two_memories_is_refused():
    state, one = new_state(), {}
    state.control.engine.on(Events.STARTED)(other)
    state.recall(step, lambda: one)
    state.recall(other, lambda: one)
    with pytest.raises(TypeError, match=r"other\(\) and engine.process are one dict"):
        written(state)


def test_one_tensor_in_several_places_is_one_again():
    state = new_state()
    one, memory = torch.arange(3.0), state.recall(step, dict)
    memory.update(a=one, b=[one, one.detach()], c=one.clone())
    state.metrics["one"] = one
    again = new_state()
    again.load_state_dict(written(state))
    found = again.recall(step, dict)
    found["a"][0] = 9
    assert [each[0] for each in found["b"]] == [9, 9]
    assert again.metrics["one"].tolist() == [0, 1, 2]  # a metric is a copy
    assert found["c"].tolist() == [0, 1, 2]


ROWS, ARRAY = torch.arange(6.0).reshape(2, 3), np.ones((2, 3))
BUFFER = bytearray(8)


@pytest.mark.parametrize(
    "views",
    [
        *((ROWS, ROWS[1]), (ROWS[:, :2], ROWS[:, 1:]), (ROWS, ROWS.view(torch.int32))),
        (ROWS, ROWS.view(torch.uint8)[1]),
        (ROWS, ROWS[:1].expand(2, 3)),
        (ARRAY, ARRAY[::-1, :1]),
        (np.frombuffer(BUFFER), np.frombuffer(BUFFER)),
        (ROWS, ROWS.numpy()),
    ],
    ids=[
        *("a row", "columns", "bits", "bytes of a row", "expanded", "turned round", "one buffer"),
        "a tensor and its array",
    ],
)
def test_parts_of_one_another_are_refused(views):
    said = refused(lambda memory: memory.update(a=views[0], b=views[1]))
    assert {said[:16], said[21:37]} == {"engine.process.a", "engine.process.b"}
    assert "are views of the same numbers, and after a resume they would be apart" in said


def test_tensors_lie_in_memory_as_before_so_that_sums_are_the_same_to_the_last_bit():
    torch.manual_seed(0)
    picture = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    content = {
        "turned": torch.randn(33, 38).t(),
        "picture": picture,
        "pieces": torch.randn(3, 4, 5).permute(2, 0, 1),
        "array": np.asfortranarray(np.random.rand(5, 7)),
        "plain": torch.randn(3, 1).t(),
        "part": torch.linalg.svd(torch.randn(38, 38)).Vh[:4],
    }
    content |= {"again": content["turned"]}
    again = put_back(content, dict)
    assert same(again, content)
    for name in ("turned", "picture", "pieces"):
        assert again[name].stride() == content[name].stride()
    assert again["array"].strides == content["array"].strides
    other = torch.randn(33, 7)
    assert torch.equal(again["turned"] @ other, content["turned"] @ other)
    # Without the gaps between its columns, which sums do not know of.
    assert again["part"].stride() == (1, 4)
    again["again"][0, 0] = 5
    assert again["turned"][0, 0] == 5


def test_parts_beside_one_another_are_taken():
    hidden, cell = ROWS.chunk(2)
    left, right = ROWS.t().unbind(1)
    content = {"a": hidden, "b": cell, "c": np.ones(4)[:2]}
    assert same(put_back(content, dict), content)
    content = {"a": left, "b": right, "c": ROWS.new_zeros(0), "d": ROWS[:0]}
    assert same(put_back(content, dict), content)


@pytest.mark.parametrize("kind", ["plain", "made of tensors"])
def test_a_tensor_that_follows_a_weight_is_refused_and_a_copy_is_taken(kind):
    model = torch.nn.Linear(2, 2)
    if kind == "made of tensors":
        model.weight = torch.nn.Parameter(TwoTensor(torch.ones(2, 2), torch.zeros(2, 2)))
    inside = model.weight.b if kind == "made of tensors" else model.weight.detach()[0]
    said = refused(lambda memory: memory.update(start=inside), model=model)
    assert "engine.process.start shares its numbers with a weight of the object 'model'" in said
    state = new_state(model=model)
    state.recall(step, dict)["start"] = inside.clone()
    written(state)


def test_a_tensor_that_follows_the_state_of_an_optimizer_is_refused():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1), momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    followed = {
        "momentum": optimizer.state[weight]["momentum_buffer"],
        "rate": optimizer.param_groups[0]["lr"],
        "weight": weight.detach(),
    }
    for name, tensor in followed.items():
        said = refused(lambda memory, n=name, t=tensor: memory.update({n: t}), optimizer=optimizer)
        assert f"engine.process.{name} shares its numbers with the state of the optimizer" in said
    state = new_state(optimizer=optimizer)
    state.recall(step, dict).update({name: tensor.clone() for name, tensor in followed.items()})
    written(state)


def test_a_memory_is_the_same_after_a_real_save(tmp_path):
    content = {1: Counter(a=2), "x": (math.nan, -0.0, {True}), "t": torch.ones(2, 3).t()}

    def run(make, change, **limits):
        def process(state, batch):
            change(state.recall(process, make))

        checkpoint = Checkpoint(tmp_path, keep=latest(1), resume=True)
        return Engine(process, checkpoint).run([1, 2], **limits).memory.saved["engine.process"]

    run(lambda: {"there": 1}, lambda memory: (memory.clear(), memory.update(content)), max_epochs=1)
    held = {"there": 1}
    assert run(lambda: held, lambda memory: None, max_epochs=2) is held
    assert same(held, content)


UNSAVED = {  # settings that the handler gives again, and what the next use finds or makes
    "Firing": {"_count", "look_at"},
    "Means": {"decay", "skip_nan"},
    "LastValues": {"skip_nan"},
    "RunningMetrics": {"device", "functions", "takes_one"},
    "Energy": {"_closed", "_folder", "_last", "_lock", "_sources", "_zones"},
}


def attributes(tree, use):
    """The attributes of `self` that are read or set."""
    found = (each for each in ast.walk(tree) if isinstance(each, ast.Attribute))
    return {e.attr for e in found if isinstance(e.ctx, use) and ast.unparse(e.value) == "self"}


def test_the_packages_memories_with_a_state_dict_save_each_attribute_or_have_it_listed_here():
    found, root = {}, Path(__file__).parents[3]
    for path in (*root.glob("engine/*.py"), *root.glob("handlers/**/*.py")):
        if "bridges" in path.parts or path.name == "scheduled.py":  # libraries keep the state
            continue
        classes = (e for e in ast.parse(path.read_text()).body if isinstance(e, ast.ClassDef))
        for kind in classes:
            own = {each.name: each for each in kind.body if isinstance(each, ast.FunctionDef)}
            if "load_state_dict" in own:
                lines = (each for each in kind.body if isinstance(each, ast.AnnAssign))
                names = {each.target.id for each in lines} | attributes(kind, ast.Store)
                found[kind.name] = names - attributes(own["state_dict"], ast.Load) - {"_"}
    assert {kind: names for kind, names in found.items() if names} == UNSAVED
    assert {"Collected", "Kept", "Rewind"} <= found.keys()
