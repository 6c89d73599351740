"""Models of Hugging Face's libraries: exports that `from_pretrained` reads, and adapters."""

import json

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Update
from camshaft.handlers import EMA, Checkpoint, Export, best, checkpoints
from camshaft.handlers.checkpoint.directory import verify_files

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
DATA = [torch.arange(8).reshape(2, 4) + number for number in range(3)]


def tiny(seed=0):
    torch.manual_seed(seed)
    sizes = {"n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)  # its head is tied to its embedding


def training(model, *handlers):
    own = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(own, 0.1, momentum=0.9)
    update = Update(optimizer)

    def step(state, batch):
        loss = model(input_ids=batch, labels=batch).loss
        if state.training:
            update(state, loss)
        state.metrics["loss"] = loss.detach()

    return Engine(step, update, *handlers, objects={"model": model, "optimizer": optimizer})


def same(one, other):
    own, others = one.state_dict(), other.state_dict()
    return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)


def test_from_pretrained_reads_an_export_which_is_verified_and_kept_like_any_other(tmp_path):
    model = tiny()
    export = Export(tmp_path, keep=best(1, "loss"), pretrained=True)
    average = Export(tmp_path / "ema", object="ema", pretrained=True)
    engine = training(model, EMA(0.5), export, average)
    engine.run(DATA, max_epochs=2)
    (saved,) = checkpoints(tmp_path)
    verify_files(saved)
    assert {"config.json", "model.safetensors"} <= {*saved.manifest.files}
    assert same(transformers.AutoModelForCausalLM.from_pretrained(saved.path), model)
    assert json.loads((saved.path / "config.json").read_text())["n_embd"] == 8
    weights = saved.state_dict("model")
    assert torch.equal(weights["transformer.wte.weight"], model.transformer.wte.weight)
    (mean,) = checkpoints(tmp_path / "ema")
    read = transformers.AutoModelForCausalLM.from_pretrained(mean.path)
    assert same(read, engine.objects["ema"])
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []


def test_a_model_without_save_pretrained_is_refused_before_the_run(tmp_path):
    model = nn.Linear(1, 1)
    engine = Engine(lambda state, batch: None, objects={"model": model})
    engine.add(Export(tmp_path, pretrained=True))
    with pytest.raises(ValueError, match=r"is a Linear, which has no save_pretrained\(\)"):
        engine.run([1], max_epochs=1)


@pytest.mark.slow
def test_an_adapter_is_resumed_exactly_and_exported_alone(tmp_path):
    peft = pytest.importorskip("peft")

    def script(directory, seed=0):
        config = peft.LoraConfig(
            target_modules=["c_attn"], r=2, lora_dropout=0.3, fan_in_fan_out=True
        )
        model = peft.get_peft_model(tiny(), config)
        torch.manual_seed(seed)
        each = Events.ITERATION_COMPLETED
        checkpoint = Checkpoint(directory / "run", when=each, resume=True)
        export = Export(directory / "adapter", when=each, pretrained=True)
        return model, training(model, checkpoint, export)

    def outcome(model):
        return {name: each.tolist() for name, each in model.state_dict().items()}

    model, engine = script(tmp_path / "whole")
    engine.run(DATA, max_epochs=3)
    _, first = script(tmp_path / "parts")
    first.run(DATA, max_iterations=4)
    resumed, second = script(tmp_path / "parts", seed=9)
    second.run(DATA, max_epochs=3)
    assert outcome(resumed) == outcome(model)

    (exported,) = checkpoints(tmp_path / "parts/adapter")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {*exported.manifest.files}
    read = peft.PeftModel.from_pretrained(tiny(), exported.path)
    assert outcome(read) == outcome(model)
