"""A run with a torch that lacks the names without a promise, or has them; writes what it gave."""

import json
import sys
from hashlib import sha256

import torch
import torch._dynamo  # which torch itself imports, and which needs some of the names
from torch.utils.data import TensorDataset

if sys.argv[1] == "without":
    for name in ("_foreach_norm", "_foreach_mul_", "_foreach_copy_"):
        delattr(torch, name)
    del torch.amp.GradScaler._found_inf_per_device
    del torch.utils.data._utils.pin_memory.pin_memory
    sys.modules["torch.utils.data._utils.collate"] = None

from camshaft import Padded, supervised
from camshaft.handlers import EMA, ClipGradNorm, NonFiniteGuard

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
data = TensorDataset(torch.randn(14, 4), torch.randint(3, (14,)))
engine = supervised(
    model, optimizer, torch.nn.functional.cross_entropy, accumulate=2, precision="fp16"
)
engine.add(ClipGradNorm(0.1), EMA(0.9), NonFiniteGuard("skip"))
state = engine.run(torch.utils.data.DataLoader(data, 4, shuffle=True), max_epochs=3)
leaves = torch.utils._pytree.tree_leaves([each.state_dict() for each in engine.objects.values()])
found = [each.tolist() if isinstance(each, torch.Tensor) else each for each in leaves]
pad = Padded(fields={"b": -1})
one, two = torch.tensor([1, 2]), torch.tensor([3])
padded = pad([{"a": one, "b": one, "c": 1}, {"a": two, "b": two, "c": 2}])
padded = {name: each.tolist() for name, each in padded.items()}
print(json.dumps([state.step, padded, sha256(repr(found).encode()).hexdigest()]))
