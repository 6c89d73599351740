#!/usr/bin/env bash
# A model that is loaded in evaluation mode goes on with a part of the old weights. transformers 5.23.0, gpytorch 1.15.2.
# Guess: load_state_dict, and an average that is copied in place, are used by the next forward pass.
# Seen: LeViT keeps its attention biases, and a Gaussian process its solution, from the first evaluation on until train()
# is called. Setting `training` of each module does not drop them either: it needs model.train() and model.eval().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 gpytorch==1.15.2
cat > "$folder/tried.py" <<'CODE'
import copy

import gpytorch
import torch
from transformers import LevitConfig, LevitModel


class Process(gpytorch.models.ExactGP):
    def __init__(self):
        x = torch.linspace(0, 1, 10)
        super().__init__(x, (6 * x).sin(), gpytorch.likelihoods.GaussianLikelihood())
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


torch.manual_seed(0)
levit = LevitModel(
    LevitConfig(
        image_size=64,
        hidden_sizes=[16, 32, 48],
        num_attention_heads=[1, 2, 3],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    )
)
images = torch.randn(2, 3, 64, 64)
for _ in range(50):
    levit.train()(images)  # for the statistics of its batch norms
trials = {
    "LeViT": (levit, "attention_biases", images, lambda model, x: model(x).last_hidden_state),
    "a Gaussian process": (Process(), "raw_", torch.tensor([0.53]), lambda model, x: model(x).mean),
}
for name, (model, moves, x, predict) in trials.items():
    best = {
        key: each + 3 * torch.rand_like(each) if moves in key else each
        for key, each in copy.deepcopy(model.state_dict()).items()
    }
    with torch.no_grad():
        fresh = copy.deepcopy(model)
        fresh.load_state_dict(best)
        right = predict(fresh.eval(), x)
        predict(model.eval(), x)
        for key, each in model.state_dict().items():
            each.copy_(best[key])
        print(name, "in place:", torch.allclose(predict(model, x), right, atol=1e-4))
        for module in model.modules():
            module.training = True
        for module in model.modules():
            module.training = False
        print(name, "after both flags:", torch.allclose(predict(model, x), right, atol=1e-4))
        model.train().eval()
        print(
            name, "after train() and eval():", torch.allclose(predict(model, x), right, atol=1e-4)
        )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
LeViT in place: False
LeViT after both flags: False
LeViT after train() and eval(): True
a Gaussian process in place: False
a Gaussian process after both flags: False
a Gaussian process after train() and eval(): True
SEEN
