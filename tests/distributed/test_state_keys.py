"""Models wrapped by torch.compile and DDP, beside plain ones: what is saved fits either."""

import ignite.distributed as idist
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Update, checkpoint_activations, supervised
from camshaft.handlers import Checkpoint, Export

pytestmark = pytest.mark.filterwarnings("ignore:Grad strides do not match")


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("group") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_RANK", "0")  # ignite asks for these
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "1")
        idist.initialize("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        yield
        idist.finalize()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, input):
        return self.head(self.encoder(input).relu())


def compiled(module):
    return torch.compile(module, backend="eager")


def compiled_in_place(module):
    module.compile(backend="eager")
    return module


def recomputed(module):
    checkpoint_activations(module, "encoder")
    return module


def compiled_inside(module):
    module.encoder = torch.compile(module.encoder, backend="eager")
    return module


WRAPPINGS = {
    "plain": lambda module: module,
    "compiled DDP": lambda module: compiled(DistributedDataParallel(module)),
    "DDP of compiled": lambda module: DistributedDataParallel(compiled(module)),
    "in place": compiled_in_place,
    "recomputed": lambda module: DistributedDataParallel(recomputed(module)),
    "inside": lambda module: DistributedDataParallel(compiled_inside(module)),
}
WRAPPED = [name for name in WRAPPINGS if name != "plain"]


def by_supervised(model, optimizer):
    return supervised(model, optimizer, torch.nn.functional.cross_entropy)


def by_hand(model, optimizer):
    update = Update(optimizer)

    def step(state, batch):
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        update(state, loss)

    return Engine(step, objects={"model": model, "optimizer": optimizer})


def run(directory, wrapping, build, epochs, names=False):
    """Train, from a checkpoint if there is one; return the weights by their order."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(23, 4), torch.randint(3, (23,)))
    model = WRAPPINGS[wrapping](Net())
    parameters = model.named_parameters() if names else model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    engine = build(model, optimizer).add(Checkpoint(directory / "run", resume=True))
    engine.add(Export(directory / "export"))
    engine.run(DataLoader(data, 5, shuffle=True), max_epochs=epochs)
    return list(model.state_dict().values())


@pytest.mark.parametrize("build", [by_supervised, pytest.param(by_hand, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(
            pytest.param("plain", other, marks=pytest.mark.slow if number else ())
            for number, other in enumerate(WRAPPED)
        ),
        *(pytest.param(other, "plain", marks=pytest.mark.slow) for other in WRAPPED),
    ],
)
def test_a_run_goes_on_with_another_wrapping_to_the_last_bit(first, second, build, tmp_path):
    run(tmp_path, first, build, 1)
    plain = Net().state_dict()
    for file in tmp_path.glob("*/iteration-*/model.safetensors"):
        assert load_file(file).keys() == plain.keys()
    assert len([*tmp_path.glob("*/iteration-*/model.safetensors")]) == 2
    found = run(tmp_path, second, build, 2)
    expected = run(tmp_path / "whole", "plain", build, 2)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.quick(wrapping=1)
@pytest.mark.parametrize("wrapping", ["compiled DDP", "inside"])
def test_an_optimizer_that_knows_names_goes_on_too(wrapping, tmp_path):
    run(tmp_path, wrapping, by_hand, 1, names=True)
    found = run(tmp_path, "plain", by_hand, 2, names=True)
    expected = run(tmp_path / "whole", "plain", by_hand, 2)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
