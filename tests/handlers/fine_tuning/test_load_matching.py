"""Pretrained weights from any source: what fits is loaded, and the rest is told."""

import logging

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from camshaft import Engine
from camshaft.handlers import Checkpoint, Export, checkpoints, load_matching


def model(outputs=2, seed=0):
    torch.manual_seed(seed)
    parts = {"body": nn.Linear(4, 3), "norm": nn.BatchNorm1d(3), "head": nn.Linear(3, outputs)}
    return nn.ModuleDict(parts)


def same(one, other):
    own, others = one.state_dict(), other.state_dict()
    return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same weights in every form."""
    path, pretrained = tmp_path_factory.mktemp("sources"), model(seed=1)
    state = pretrained.state_dict()
    save_file(state, path / "model.safetensors")
    torch.save(state, path / "state.pt")
    torch.save({"model": state, "epoch": 3, "rng": torch.zeros(2)}, path / "run.pt")
    torch.save({"state_dict": state}, path / "lightning.ckpt")
    torch.save({f"module._orig_mod.{n}": each for n, each in state.items()}, path / "wrapped.pth")
    engine = Engine(lambda state, batch: None, objects={"model": pretrained})
    engine.add(Checkpoint(path / "run"), Export(path / "best")).run("ab", max_epochs=2)
    (saved,) = checkpoints(path / "best")
    saved.export(path / "exported.pt")
    return pretrained, {
        **{each.name: each for each in path.iterdir()},
        **{"one checkpoint": str(saved.path), "saved": saved, "state dict": dict(state)},
        "directory of a file": path,
    }


KINDS = [
    *("model.safetensors", "state.pt", "run.pt", "lightning.ckpt", "wrapped.pth", "run", "best"),
    *("exported.pt", "one checkpoint", "saved", "state dict", "directory of a file"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_from_every_kind_of_source_into_a_wrapped_model_too(sources, kind, caplog):
    pretrained, found = sources
    own = model()
    report = load_matching(nn.DataParallel(own), found[kind])
    assert same(own, pretrained)
    assert len(report.loaded) == len(own.state_dict())
    assert caplog.text == ""


def test_a_weight_of_a_type_that_no_checkpoint_holds_is_refused(tmp_path):
    scales = torch.ones(3, 4).to(torch.float8_e8m0fnu)
    save_file({"body.weight": scales}, tmp_path / "model.safetensors")
    own = model()
    with pytest.raises(ValueError, match=r"has a tensor of float8_e8m0: 'body.weight'"):
        load_matching(own, tmp_path)
    assert same(own, model())


def test_what_does_not_fit_stays_as_it_was_and_is_reported(sources, caplog):
    pretrained, _ = sources
    own = model(outputs=5)
    own["extra"] = nn.Linear(1, 1)
    head, extra = own["head"].weight.clone(), own["extra"].weight.clone()
    given = {**pretrained.state_dict(), "old.weight": torch.zeros(1), "note": "text"}
    with caplog.at_level(logging.WARNING, "camshaft"):
        report = load_matching(own, given)
    assert torch.equal(own["body"].weight, pretrained["body"].weight)
    assert torch.equal(own["head"].weight, head)
    assert torch.equal(own["extra"].weight, extra)
    assert str(report).splitlines() == [
        "loaded 7 of 11 weights from a state dict",
        "  with another shape: head.weight [2, 3] -> [5, 3], head.bias [2] -> [5]",
        "  not in the source: extra.weight, extra.bias",
        "  not in the model: old.weight",
    ]
    assert str(report) in caplog.text


def test_names_can_be_changed_and_types_are_those_of_the_model(sources):
    pretrained, _ = sources
    own = nn.Linear(4, 3).to(torch.bfloat16)
    report = load_matching(
        own, pretrained.state_dict(), rename=lambda name: name.removeprefix("body.")
    )
    assert torch.equal(own.weight, pretrained["body"].weight.to(torch.bfloat16))
    assert len(report.unused) == 7


def test_a_part_called_module_is_no_wrapper_and_a_wrapped_part_makes_no_difference():
    def build(wrap):
        return nn.ModuleDict({"module": nn.Sequential(nn.Linear(2, 2), wrap(nn.Linear(2, 2)))})

    source = build(lambda part: part)
    for own in (build(lambda part: part), build(nn.DataParallel)):
        for form in (source, nn.DataParallel(source)):
            torch.nn.init.zeros_(own["module"][0].weight)
            assert len(load_matching(own, form.state_dict()).loaded) == 4
            assert all(map(torch.equal, own.parameters(), source.parameters()))


def test_tied_weights_that_a_file_holds_once_are_loaded_and_not_missed():
    own = nn.ModuleDict({"embed": nn.Embedding(4, 3), "head": nn.Linear(3, 4, bias=False)})
    own["head"].weight = own["embed"].weight
    given = torch.rand(4, 3)
    assert load_matching(own, {"embed.weight": given}).untouched == []
    assert torch.equal(own["head"].weight, given)


def test_where_nothing_fits_or_nothing_is_there_an_error_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"has 'x', and the model has 'weight', 'bias'; rename="):
        load_matching(nn.Linear(1, 1), {"x": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"the source has no 'model'; it has 'net': pass object="):
        load_matching(nn.Linear(1, 1), {"net": {"weight": torch.zeros(1)}})
    with pytest.raises(FileNotFoundError, match=r"nowhere.pt' does not exist"):
        load_matching(nn.Linear(1, 1), tmp_path / "nowhere.pt")
    with pytest.raises(FileNotFoundError, match=r"holds no checkpoint and no model.safetensors"):
        load_matching(nn.Linear(1, 1), tmp_path)


def test_a_file_of_something_else_says_what_it_holds(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(ValueError, match=r"list.pt holds a list; it needs a state dict"):
        load_matching(nn.Linear(1, 1), tmp_path / "list.pt")


def test_a_file_that_would_run_code_is_refused(tmp_path):
    torch.save({"weight": nn.Linear(1, 1)}, tmp_path / "whole.pt")
    with pytest.raises(Exception, match="weights_only|Weights only"):
        load_matching(nn.Linear(1, 1), tmp_path / "whole.pt")


@pytest.mark.parametrize("named", ["snapshot", "snapshot/model.safetensors"])
def test_weights_may_lie_behind_a_link_as_in_the_cache_of_hugging_face(named, tmp_path):
    given, own = nn.Linear(2, 1), nn.Linear(2, 1)
    (tmp_path / "snapshot").mkdir()
    save_file(given.state_dict(), tmp_path / "blob")
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(tmp_path / "blob")
    load_matching(own, tmp_path / named)
    assert torch.equal(own.weight, given.weight)


def test_two_weights_that_are_renamed_to_one_are_refused():
    both = {f"{part}.{n}": w for part in "qk" for n, w in nn.Linear(4, 2).state_dict().items()}
    with pytest.raises(ValueError, match=r"two weights for 'weight', one of them is 'k.weight'"):
        load_matching(nn.Linear(4, 2), both, rename=lambda name: name.partition(".")[2])
