"""Run on one, two or four ranks: an adapter of a frozen, sharded model equals one process."""

import sys
from pathlib import Path

import peft
import pytest
import torch
import transformers

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import FORMS, batches, check, sharded, share, whole
from models import Net as Base
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel

from camshaft import ranks, supervised
from camshaft.handlers import EMA, Export, Validate, checkpoints, load_matching

PLACE = Path(sys.argv[1])
FORM = "plain"


class Adapter(nn.Module):
    """A frozen layer, and a correction of low rank (Hu et al., 2021)."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float64)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float64)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Net(Base):
    """The base, frozen, with an adapter of its first layer and one of its head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.requires_grad_(False)
        self.tied = nn.Linear(8, 3, dtype=torch.float64).requires_grad_(False)
        self.first, self.head = Adapter(self.first), Adapter(self.head)

    def adapters(self):
        parts = {"first": self.first, "head": self.head}
        return nn.ModuleDict(
            {f"{n}_{k}": getattr(m, k) for n, m in parts.items() for k in ("up", "down")}
        )


def trained(form, place):
    """Train the adapters alone; average, evaluate and export them alone."""
    model = Net()
    model, number, count = sharded(
        model, form, {"first.base": ColwiseParallel(output_layouts=Replicate())}
    )
    load_matching(model, PLACE / "base.safetensors", rename=renamed)
    adapters = model.adapters()
    optimizer = torch.optim.AdamW(adapters.parameters(), 0.05)
    engine = supervised(model, optimizer, nn.functional.mse_loss, device="cpu")
    engine.objects["adapters"] = adapters
    validation = share(batches(3, seed=2), number, count)
    rows = []
    engine.add(
        EMA(0.5, object="adapters", name="average"),
        Validate(validation, name="val"),
        Validate(validation, name="ema", weights={"adapters": "average"}),
        Export(place / "adapters", object="adapters"),
        Export(place / "average", object="average"),
    )
    state = engine.run(share(batches(), number, count), max_epochs=3)
    rows += [float(state.metrics[name]) for name in ("val/loss", "ema/loss")]
    return engine, rows


def renamed(name):
    layer, _, kind = name.rpartition(".")
    return f"{layer}.base.{kind}" if layer in ("first", "head") else name


def an_adapter_trains_averages_and_is_exported_alone_as_in_one_process():
    place = PLACE / FORM
    engine, rows = trained(FORM, place)
    other = place / f"alone-{ranks.rank()}"
    with ranks.alone():
        wanted, wanted_rows = trained("plain", other)
    assert rows == pytest.approx(wanted_rows, rel=0, abs=1e-12)
    assert rows[0] != rows[1]
    ranks.gathered(None)
    for name in ("adapters", "average"):
        check(whole(engine.objects[name]), whole(wanted.objects[name]))
        (found,), (expected,) = checkpoints(place / name), checkpoints(other / name)
        file = f"{name}.safetensors"
        check(load_file(found.path / file), load_file(expected.path / file))
        keys = {"first_up.weight", "first_down.weight", "head_up.weight", "head_down.weight"}
        assert load_file(found.path / file).keys() == keys
    base = load_file(PLACE / "base.safetensors")
    model = whole(engine.objects["model"])
    assert all(torch.equal(model[renamed(name)], base[name]) for name in base if name != "mean")


def what_is_loaded_is_the_report_of_one_process():
    source = {**load_file(PLACE / "base.safetensors"), "more": torch.zeros(1)}
    source["head.bias"] = torch.zeros(5)
    model, *_ = sharded(Base(seed=7), FORM)
    expected = load_matching(Base(seed=7), source)
    assert load_matching(model, source) == expected
    assert expected.reshaped == ["head.bias [5] -> [3]"]
    source.pop("tied.weight")
    assert load_matching(model, source).untouched == []
    with ranks.alone():
        plain = Base(seed=7)
        load_matching(plain, source)
    check(whole(model), whole(plain))


def language_model(form):
    """A tiny GPT-2 with peft's adapter, sharded by FSDP2, made from a configuration alone."""
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_embd": 12, "n_head": 2, "vocab_size": 17, "n_positions": 16}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    base = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **drops)).double()
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(base, config).double()
    if form != "plain":
        for block in base.transformer.h:
            fully_shard(block)
        fully_shard(model)
    return model


def next_tokens(output, labels):
    """The loss in float64: that of transformers is in float32."""
    logits = output.logits[:, :-1].flatten(0, 1)
    return nn.functional.cross_entropy(logits, labels[:, 1:].flatten())


def with_peft(form, place):
    model = language_model(form)
    number, count = (ranks.rank(), ranks.world_size()) if form != "plain" else (0, 1)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.05)
    tokens = torch.randint(17, (3, 4, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": each, "labels": each} for each in tokens]
    own = [{k: v.chunk(count)[number] for k, v in batch.items()} for batch in data]
    engine = supervised(model, optimizer, next_tokens, device="cpu")
    engine.add(EMA(0.5), Validate(own, name="ema", weights="ema"))
    engine.add(Export(place / "adapter", pretrained=True))
    state = engine.run(own, max_epochs=2)
    return engine, float(state.metrics["ema/loss"])


def peft_on_a_sharded_model_of_transformers_equals_one_process():
    place = PLACE / f"{FORM} peft"
    engine, loss = with_peft(FORM, place)
    other = place / f"alone-{ranks.rank()}"
    with ranks.alone():
        wanted, wanted_loss = with_peft("plain", other)
    assert loss == pytest.approx(wanted_loss, rel=0, abs=1e-12)
    ranks.gathered(None)
    (found,), (expected,) = checkpoints(place / "adapter"), checkpoints(other / "adapter")
    files = {path.name for path in expected.path.iterdir()}
    assert {path.name for path in found.path.iterdir()} == files
    name = "adapter_model.safetensors"
    check(load_file(found.path / name), load_file(expected.path / name))
    assert all("lora_" in key for key in load_file(found.path / name))
    check(whole(engine.objects["ema"]), whole(wanted.objects["ema"]))


with ranks.process_group("gloo"):
    if ranks.rank() == 0:
        PLACE.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(9)
        weights = Base(seed=11).state_dict()
        save_file(
            {name: each.clone() for name, each in weights.items()}, PLACE / "base.safetensors"
        )
    ranks.gathered(None)
    for FORM in sys.argv[2:] or FORMS[ranks.world_size()]:
        for each in checks.checks_of(globals())[
            : 3 if FORM == "FSDP" else 2
        ]:  # peft's model has no other layout
            each()
            print(f"rank {ranks.rank()}, {FORM}: {each.__name__}", flush=True)
