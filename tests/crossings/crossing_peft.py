"""peft: adapters around a model whose own weights are frozen."""

import torch
from crossing import Trial, adam, digits, exact, held_out, network, trained_by
from torch import nn

from camshaft import Engine, Events, Update
from camshaft.handlers import EMA


def adapted(config):
    from peft import get_peft_model

    torch.manual_seed(0)
    return get_peft_model(network(), config)


@exact("peft", "Models", "supervised(get_peft_model(model, LoraConfig(...)), optimizer, loss)")
def test_lora(folder):
    """LoraConfig with dropout and a trained head (modules_to_save), and an EMA."""
    from peft import LoraConfig

    def model():
        return adapted(LoraConfig(target_modules=["0"], modules_to_save=["3"], lora_dropout=0.1))

    return trained_by(adam, model, EMA(0.9), held_out())


@exact("peft", "Models", "supervised(get_peft_model(model, LoraConfig(use_dora=True)), ...)")
def test_dora(folder):
    """LoraConfig with DoRA, whose magnitudes are weights of their own."""
    from peft import LoraConfig

    def model():
        return adapted(LoraConfig(target_modules=["0", "3"], use_dora=True))

    return trained_by(adam, model, held_out())


@exact(
    "peft",
    "Models",
    'objects={"scores": Scores(model), ...}, which saves what the rank allocator has summed',
    note="Without it, a resumed run allocates other ranks: no state_dict has these sums.",
)
def test_adalora(folder):
    """AdaLoraConfig, whose ranks are allocated by sums over the run."""
    from peft import AdaLoraConfig

    class Scores:
        sums = ("ipt", "exp_avg_ipt", "exp_avg_unc")

        def __init__(self, model):
            self.allocator = model.base_model.rankallocator
            self.config = model.peft_config["default"]

        def state_dict(self):
            sums = {name: getattr(self.allocator, name) for name in self.sums}
            return {**sums, "pattern": self.config.rank_pattern}

        def load_state_dict(self, state):
            for name in self.sums:
                setattr(self.allocator, name, dict(state[name]))
            self.config.rank_pattern = state["pattern"]

    model = adapted(
        AdaLoraConfig(
            target_modules=["0", "3"], init_r=6, target_r=2, tinit=2, tfinal=4, total_step=33
        )
    )
    update = Update(adam(model))

    def step(state, batch):
        features, classes = batch
        update(state, nn.functional.cross_entropy(model(features), classes))

    objects = {"model": model, "optimizer": update.optimizer, "scores": Scores(model)}
    engine = Engine(step, update, objects=objects)

    @engine.on(Events.GRADIENTS_READY)  # its scores need gradients
    def allocate(state):
        model.base_model.update_and_allocate(state.step)

    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))
