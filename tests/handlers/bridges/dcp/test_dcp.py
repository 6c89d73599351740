"""DCP directories in one process: what does not fit, is damaged or hostile is refused."""

import os
import pickle
from dataclasses import replace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.nn.functional import mse_loss

from camshaft import supervised
from camshaft.handlers import Checkpoint, checkpoints, export_dcp, load_dcp, load_matching
from camshaft.handlers.checkpoint import BrokenCheckpoint

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled:UserWarning",
    "ignore:TypedStorage is deprecated:UserWarning",  # of torch 2.8's own writer
)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def made(seed=0, kind=torch.optim.AdamW, width=4):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))
    return model, kind(model.parameters(), lr=0.1)


def trained(model, optimizer):
    for _ in range(2):
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def write(folder, model, optimizer, **options):
    own, state = get_state_dict(model, optimizer, **options)
    dcp.save({"model": own, "optim": state}, checkpoint_id=folder, no_dist=True)


def equal(one, other):
    for a, b in zip(one, other, strict=True):
        own, given = a.state_dict(), b.state_dict()
        if "state" in own:
            assert own["param_groups"] == given["param_groups"]
            assert own["state"].keys() == given["state"].keys()
            for index, each in own["state"].items():
                assert each.keys() == given["state"][index].keys()
                assert all(torch.equal(each[key], given["state"][index][key]) for key in each)
        else:
            assert all(torch.equal(own[key], given[key]) for key in own)


@pytest.fixture
def folder(tmp_path):
    trained(*(pair := made()))
    write(tmp_path / "dcp", *pair)
    return tmp_path / "dcp", pair


@pytest.fixture
def metadata(folder):
    """A function that changes the `.metadata`, and what is refused then."""
    path = folder[0] / ".metadata"

    def change(act, kind=BrokenCheckpoint):
        content = pickle.loads(path.read_bytes())
        act(content)
        path.write_bytes(pickle.dumps(content))
        return refused(folder[0], kind)

    return change


def refused(path, kind=BrokenCheckpoint):
    """What is said of a directory that is refused; the objects stay as they were."""
    pair, same = made(1), made(1)
    with pytest.raises(kind) as error:
        load_dcp(path, dict(zip(("model", "optim"), pair, strict=True)))
    equal(pair, same)
    return str(error.value)


def test_a_run_from_what_was_loaded_is_the_run_that_would_have_gone_on(folder):
    path, pair = folder
    other = made(1)
    groups = [*other[1].param_groups]
    load_dcp(path, dict(zip(("model", "optim"), other, strict=True)))
    equal(pair, other)
    assert [*map(id, other[1].param_groups)] == [*map(id, groups)]  # which a script may hold
    for each in (pair, other):
        trained(*each)
    equal(pair, other)


@pytest.mark.parametrize("options", [StateDictOptions(), FLAT], ids=["nested", "flat"])
def test_groups_and_parameters_may_have_another_order(tmp_path, options):
    model, _ = made()
    first, second = ([*layer.parameters()] for layer in model)
    optimizer = torch.optim.AdamW([{"params": first, "lr": 0.5}, {"params": second}], lr=0.1)
    trained(model, optimizer)
    write(tmp_path / "dcp", model, optimizer, options=options)
    other, _ = made(1)
    first, second = ([*layer.parameters()][::-1] for layer in other)
    turned = torch.optim.AdamW([{"params": second}, {"params": first}])
    load_dcp(tmp_path / "dcp", {"optim": turned, "model": other})
    assert [group["lr"] for group in turned.param_groups] == [0.1, 0.5]
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[one]["exp_avg"], turned.state[two]["exp_avg"])
    together = torch.optim.AdamW(other.parameters())
    with pytest.raises(ValueError, match="one group have different settings"):
        load_dcp(tmp_path / "dcp", {"optim": together, "model": other})


def test_an_optimizer_without_states_and_frozen_weights_go_there_and_back(tmp_path):
    model, optimizer = made(kind=torch.optim.SGD)
    model[0].requires_grad_(False)
    engine = supervised(model, optimizer, mse_loss)
    engine.add(Checkpoint(tmp_path / "run"))
    engine.run([(torch.ones(2, 3), torch.ones(2, 2))], max_epochs=2)
    export_dcp(checkpoints(tmp_path / "run").latest(), tmp_path / "dcp")
    other = made(1, torch.optim.SGD)
    load_dcp(tmp_path / "dcp", {"model": other[0], "optimizer": other[1]})
    equal((model, optimizer), other)


def test_tied_weights_have_the_first_of_their_names(tmp_path):
    def tied(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model, torch.optim.AdamW(model.parameters())

    pair, other, torchs = tied(0), tied(1), tied(2)
    engine = supervised(*pair, mse_loss).add(Checkpoint(tmp_path / "run"))
    engine.run([(torch.ones(2, 3), torch.ones(2, 3))], max_epochs=2)
    export_dcp(checkpoints(tmp_path / "run").latest(), tmp_path / "dcp")
    load_dcp(tmp_path / "dcp", {"model": other[0], "optimizer": other[1]})
    equal(pair, other)
    own, state = get_state_dict(*torchs)
    content = {"model": own, "optimizer": state}
    dcp.load(content, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert torch.equal(content["optimizer"]["state"]["0.weight"]["exp_avg"],
                       pair[1].state[pair[0][0].weight]["exp_avg"])  # fmt: skip


def test_two_modules_of_one_optimizer_are_named_as_parts_of_one(tmp_path):
    def both(seed):
        torch.manual_seed(seed)
        found = nn.ModuleDict({"encoder": nn.Linear(3, 3), "decoder": nn.Linear(3, 2)})
        return found, torch.optim.AdamW(found.parameters())

    pair, other = both(0), both(1)
    trained(nn.Sequential(*pair[0].values()), pair[1])
    write(tmp_path / "dcp", *pair)
    load_dcp(tmp_path / "dcp", {"model": other[0], "optim": other[1]})
    equal(pair, other)
    parts, _ = both(2)
    optimizer = torch.optim.AdamW(parts.parameters())
    dcp.save({"encoder": parts["encoder"].state_dict(), "decoder": parts["decoder"].state_dict(),
              "optim": get_state_dict(*pair)[1]},
             checkpoint_id=tmp_path / "parts", no_dist=True)  # fmt: skip
    load_dcp(tmp_path / "parts", {**parts, "optim": optimizer})
    equal(pair[1:], [optimizer])


def test_one_object_is_exported_without_a_key(tmp_path, camshaft):
    pair = made()
    engine = supervised(*pair, mse_loss).add(Checkpoint(tmp_path / "run"))
    engine.run([(torch.ones(2, 3), torch.ones(2, 2))], max_epochs=1)
    place = tmp_path / "new" / "dcp"
    arguments = ("export", tmp_path / "run", place, "--format", "dcp", "--object", "model")
    code, lines, errors = camshaft(*arguments)
    assert (code, errors, len(lines)) == (0, [], 1)
    other, _ = made(1)
    content = other.state_dict()
    dcp.load(content, checkpoint_id=place, no_dist=True)
    equal(pair[:1], [other])
    another, _ = made(2)
    load_dcp(place, {"": another})
    equal(pair[:1], [another])
    model, _ = made(3)
    assert len(load_matching(model, place).loaded) == 4
    code, _, errors = camshaft(*arguments)
    assert (code, len(errors)) == (1, 1)
    assert "name a directory that is new" in errors[0]


def test_what_does_not_fit_is_told(folder, tmp_path):
    path, (model, _) = folder
    larger = made(1, width=5)
    with pytest.raises(ValueError, match=r"'0.weight' is float32 \[4, 3\] there, and .*5, 3"):
        load_dcp(path, {"model": larger[0]})
    with pytest.raises(ValueError, match="bfloat16"):
        load_dcp(path, {"model": made(1)[0].bfloat16()})
    with pytest.raises(ValueError, match="missing there: '2.bias', '2.weight'; others.*: none"):
        load_dcp(path, {"model": nn.Sequential(*made()[0], nn.Linear(2, 2))})
    with pytest.raises(ValueError, match="another kind of optimizer"):
        load_dcp(path, dict(zip(("model", "optim"), made(1, torch.optim.SGD), strict=True)))
    with pytest.raises(ValueError, match="in none of the modules"):
        load_dcp(path, {"optim": made()[1]})
    with pytest.raises(ValueError, match="'optimizer' cannot be loaded from .*missing there: '0.b"):
        load_dcp(path, dict(zip(("model", "optimizer"), made(1), strict=True)))
    with pytest.raises(TypeError, match="'step' is neither"):
        load_dcp(path, {"step": 3})
    with pytest.raises(BrokenCheckpoint, match=r"\.metadata cannot be read: No such file"):
        load_dcp(tmp_path / "nowhere", {"model": model})


def test_missing_and_damaged_files_are_named(folder):
    path, (model, _) = folder
    (file,) = path.glob("*.distcp")
    content = bytearray(file.read_bytes())
    file.write_bytes(content[:-100])
    assert f"{file.name} has " in refused(path)
    file.unlink()
    assert f"{file.name} cannot be read: No such file" in refused(path)
    file.symlink_to("/dev/zero")
    assert file.name in refused(path)
    file.unlink()
    content[content.index(model[1].weight.detach().numpy().tobytes())] ^= 1
    file.write_bytes(content)
    assert f"{file.name} is damaged: " in refused(path)


class Runs:
    """A pickle that would make a file."""

    def __reduce__(self):
        return os.mkdir, ("made-by-a-pickle",)


NESTED = b"\x80\x04})\x94" + b"".join(b"h%c\x86\x94" % n for n in range(60)) + b"Ns."
"""A dict whose key is a tuple of tuples, of which a hash would look at 2**60."""
HOSTILE = {
    "a call": (pickle.dumps(Runs()), "names posix.mkdir"),
    "a class of torch": (pickle.dumps(nn.Linear), "names torch.nn.modules.linear.Linear"),
    "a builtin": (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "names builtins.eval"),
    "a nested key": (NESTED, "keys that are no names"),
    "an attribute of a class": (
        b"\x80\x04ctorch\nSize\n}X\x01\x00\x00\x00aNsb.",
        "sets attributes of what has none",
    ),
    "a large place in the memo": (b"\x80\x04Nr\xff\xff\xff\xff.", "invalid content"),
    "a persistent id": (b"\x80\x04NQ.", "invalid content"),
    "an extension": (b"\x80\x04\x82\x01.", "invalid content"),
    "a large array": (b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.", "invalid content"),
    "nothing": (b"", "invalid content"),
    "a number": (b"\x80\x04K\x01.", "invalid content"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_metadata_that_torch_does_not_write_is_refused(folder, name, monkeypatch):
    monkeypatch.chdir(folder[0].parent)
    content, said = HOSTILE[name]
    (folder[0] / ".metadata").write_bytes(content)
    assert said in refused(folder[0])
    with pytest.raises(BrokenCheckpoint):
        load_matching(made()[0], folder[0])
    assert not os.path.exists("made-by-a-pickle")


def test_places_and_sizes_that_are_not_there_are_refused(metadata):
    index = MetadataIndex("model.0.weight", [0, 0])

    def tell(**values):
        def act(content):
            for key, value in values.items():
                setattr(content.storage_data[index], key, value)

        return act

    assert "not inside of the directory" in metadata(tell(relative_path="../x.distcp"))
    assert "not inside of the directory" in metadata(tell(relative_path="/etc/passwd"))
    assert "where sizes should be" in metadata(tell(relative_path="__0_0.distcp", offset=-1))
    assert "needs" in metadata(tell(offset=2**60))
    assert "where sizes should be" in metadata(tell(offset=2**70))
    assert "invalid content" in metadata(lambda content: content.storage_data.pop(index))


def test_shapes_that_do_not_agree_are_refused(metadata):
    def sizes(*chunk):
        def act(content):
            content.state_dict_metadata["model.0.weight"].chunks[0].sizes = torch.Size(chunk)

        return act

    assert "outside of" in metadata(sizes(2**40, 3))
    assert "not the whole of" in metadata(sizes(3, 3))

    def larger(content):
        own = content.state_dict_metadata["model.0.weight"]
        own.size = own.chunks[0].sizes = torch.Size((2**40, 3))

    assert "[1099511627776, 3] there" in metadata(larger, ValueError)  # and nothing is allocated


def test_the_values_in_files_are_read_without_running_anything(folder, monkeypatch):
    path, _ = folder
    monkeypatch.chdir(path.parent)
    (file,) = path.glob("*.distcp")
    content = pickle.loads((path / ".metadata").read_bytes())
    stored = content.storage_data[MetadataIndex("optim.param_groups.0.lr")]
    stored.offset = file.stat().st_size
    torch.save(Runs(), path / "evil")
    with file.open("ab") as opened:
        opened.write((path / "evil").read_bytes())
    stored.length = (path / "evil").stat().st_size
    (path / ".metadata").write_bytes(pickle.dumps(content))
    assert file.name in refused(path)
    assert not os.path.exists("made-by-a-pickle")


def rewritten(folder, act, kind=torch.optim.AdamW):
    """A directory whose saved states and settings of the optimizer were changed by `act`."""
    trained(*(pair := made(kind=kind)))
    own, state = get_state_dict(*pair)
    act(state)
    dcp.save({"model": own, "optim": state}, checkpoint_id=folder, no_dist=True)
    return folder


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("step", None, r"of the states of '0.weight', 'step' is missing there, and a number in"),
        ("step", "x", r"'step' is a str there, and a number in the optimizer"),
        ("step", torch.ones(3), r"'step' is float32 \[3\] there, and a number"),
        ("exp_avg", torch.ones(3, 4), r"'exp_avg' is float32 \[3, 4\] there, and float32 \[4, 3\]"),
        ("exp_avg", torch.ones(4, 3).double(), r"is float64 \[4, 3\] there, and float32"),
        ("exp_avg", 1.0, r"'exp_avg' is a number there"),
        ("exp_bvg", torch.ones(4, 3), r"'exp_bvg' is float32 \[4, 3\] there, and missing in"),
    ],
)
def test_a_state_that_the_optimizer_does_not_have_of_a_parameter_is_refused(
    tmp_path, name, value, said
):
    def act(state):
        state["state"]["0.weight"][name] = value
        if value is None:
            del state["state"]["0.weight"][name]

    with pytest.raises(ValueError, match=said):
        raise ValueError(refused(rewritten(tmp_path, act), ValueError))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("lr", "fast", "'lr' is a str there, and a number in the optimizer"),
        ("betas", (0.9, "x"), r"'betas' is \(a number, a str\) there, and \(a number, a number\)"),
        ("betas", 0.9, r"'betas' is a number there"),
    ],
)
def test_a_setting_of_another_kind_is_refused(tmp_path, name, value, said):
    def act(state):
        state["param_groups"][0][name] = value

    with pytest.raises(ValueError, match=said):
        raise ValueError(refused(rewritten(tmp_path, act), ValueError))


def test_an_optimizer_that_was_saved_by_numbers_says_what_to_save(tmp_path):
    trained(*(pair := made()))
    plain = {"model": pair[0].state_dict(), "optim": pair[1].state_dict()}
    dcp.save(plain, checkpoint_id=tmp_path / "dcp", no_dist=True)
    model, optimizer = made()
    with pytest.raises(ValueError, match="parameters have numbers there.*get_optimizer_state_dict"):
        load_dcp(tmp_path / "dcp", {"model": model, "optim": optimizer})


OF_TORCH = {
    "ASGD": {},
    "Adafactor": {},
    "Adam": {"amsgrad": True},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Rprop": {},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (at > 3)) for at, n in enumerate(OF_TORCH)],
)
def test_states_of_the_optimizers_of_torch_are_loaded_and_other_names_are_refused(tmp_path, name):
    def kind(parameters, lr):
        return getattr(torch.optim, name)(parameters, lr=lr, **OF_TORCH[name])

    trained(*(pair := made(kind=kind)))
    own, state = get_state_dict(*pair)
    dcp.save({"model": own, "optim": state}, checkpoint_id=tmp_path / "right", no_dist=True)
    other = made(1, kind)
    load_dcp(tmp_path / "right", dict(zip(("model", "optim"), other, strict=True)))
    equal(pair, other)
    states = state["state"]["1.bias"]
    states["other"] = states.popitem()[1]
    dcp.save({"model": own, "optim": state}, checkpoint_id=tmp_path / "wrong", no_dist=True)
    another, same = made(1, kind), made(1, kind)
    with pytest.raises(ValueError, match=r"of the states of '1.bias', '.*' is .* there, and"):
        load_dcp(tmp_path / "wrong", dict(zip(("model", "optim"), another, strict=True)))
    equal(another, same)


def test_settings_of_the_directory_decide_which_states_there_are(tmp_path):
    def with_momentum(parameters, lr):
        return torch.optim.SGD(parameters, lr, momentum=0.9)

    trained(*(pair := made(kind=with_momentum)))
    write(tmp_path / "dcp", *pair)
    other = made(1, torch.optim.SGD)
    load_dcp(tmp_path / "dcp", dict(zip(("model", "optim"), other, strict=True)))
    equal(pair, other)


class Refuses(torch.optim.SGD):
    """An optimizer of the script's, which refuses a state after it has taken it."""

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self.param_groups[0]["lr"] == 0.1:
            raise KeyError("factor")


class Counts(nn.Linear):
    """A layer with a state of its own, which takes even numbers only."""

    calls = 2

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, calls):
        if calls % 2:
            raise RuntimeError("an odd number")
        self.calls = calls


def test_what_an_object_refuses_as_it_is_loaded_changes_nothing(tmp_path):
    def both(seed, lr=0.1):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 2), Counts(2, 2))
        return model, torch.optim.AdamW(model.parameters(), lr), Refuses(model.parameters(), lr)

    def save(name):
        trained(*pair[:2])
        (own, first), (_, second) = (get_state_dict(pair[0], each) for each in pair[1:])
        content = {"model": own, "first": first, "second": second}
        dcp.save(content, checkpoint_id=tmp_path / name, no_dist=True)

    pair = both(0)
    save("even")
    pair[0][1].calls = 3
    save("odd")
    other, same = both(1, 0.5), both(1, 0.5)
    keys = ("model", "first", "second")
    with pytest.raises(ValueError, match="'second' cannot be loaded from .*even: KeyError: 'fact"):
        load_dcp(tmp_path / "even", dict(zip(keys, other, strict=True)))
    equal(other[1:], same[1:])
    assert_same(other[0], same[0])
    with pytest.raises(ValueError, match="'model' cannot be loaded from .*odd: .*: an odd number"):
        load_dcp(tmp_path / "odd", dict(zip(keys[:2], other, strict=False)))
    equal(other[1:], same[1:])
    assert_same(other[0], same[0])


def assert_same(one, other):
    assert one[1].calls == other[1].calls
    assert all(map(torch.equal, one.parameters(), other.parameters()))


def test_a_flipped_bit_in_a_name_is_found(folder):
    path, _ = folder
    metadata = path / ".metadata"
    raw = metadata.read_bytes()
    for name in (b"0.weight.exp_avg_sq", b"exp_avg_sq\x94", b"0.weight.lr", b"param_groups\x94"):
        if name in raw:
            changed = bytearray(raw)
            changed[raw.index(name) + 9] ^= 1
            metadata.write_bytes(changed)
            assert ".metadata has other keys for " in refused(path)


def test_pieces_that_do_not_cover_a_tensor_once_are_refused(metadata):
    def pieces(*chunks):
        def act(content):
            own = content.state_dict_metadata["model.0.weight"]
            own.chunks = [ChunkStorageMetadata(torch.Size(a), torch.Size(b)) for a, b in chunks]
            stored = content.storage_data[MetadataIndex("model.0.weight", [0, 0])]
            for place, (begin, _) in enumerate(chunks):
                index = MetadataIndex("model.0.weight", torch.Size(begin))
                content.storage_data[index] = replace(
                    stored, offset=2**40 + place, length=1, relative_path="other"
                )

        return act

    whole = "pieces that are not the whole of 'model.0.weight'"
    upper, lower = ((0, 0), (2, 3)), ((2, 0), (2, 3))
    assert whole in metadata(pieces(upper, upper))
    assert whole in metadata(pieces(upper, ((1, 0), (2, 3))))  # row 1 twice, row 3 never
    assert whole in metadata(pieces(((0, 0), (4, 2)), ((0, 1), (4, 1))))
    assert whole in metadata(pieces(((0, 0), (2, 2)), ((2, 0), (2, 2)), ((0, 2), (2, 2 - 1))))
    assert whole not in metadata(pieces(upper, lower))
    corner = ((0, 0), (3, 2)), ((0, 2), (3, 1)), ((3, 0), (1, 3)), ((4, 0), (0, 3))
    assert whole not in metadata(pieces(*corner))


def test_bytes_that_are_named_twice_are_refused(metadata):
    def act(content):
        one, other = (MetadataIndex(f"optim.state.0.weight.{n}", [0, 0])
                      for n in ("exp_avg", "exp_avg_sq"))  # fmt: skip
        content.storage_data[one].offset = content.storage_data[other].offset

    assert "names some bytes of __0_0.distcp twice" in metadata(act)
