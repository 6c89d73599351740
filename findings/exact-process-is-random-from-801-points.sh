#!/usr/bin/env bash
# From 801 points on, the loss of an exact Gaussian process is drawn. gpytorch 1.15.2, torch 2.13.0, CPU.
# Guess: ExactMarginalLogLikelihood is a function of parameters and data.
# Seen: beyond 800 points the determinant is estimated with vectors from torch's generator, and the solution is iterated. The
# loss of the same parameters is another one each time, and each call draws from the generator that orders the data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet gpytorch==1.15.2
cat > "$folder/tried.py" <<'CODE'
import gpytorch
import torch

class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

for number in (800, 801):
    torch.manual_seed(0)
    x = torch.linspace(0, 10, number)
    y = torch.sin(x) + 0.1 * torch.randn(number)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    process = Process(x, y, likelihood)
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    generator = torch.get_rng_state()
    values = {loss(process(x), y).item() for _ in range(5)}
    draws = not torch.equal(generator, torch.get_rng_state())
    print(f"{number} points: {len(values)} values in five calls, draws from the generator: {draws}", end=", ")
    with gpytorch.settings.max_cholesky_size(10_000):
        print("max_cholesky_size(10_000):", len({loss(process(x), y).item() for _ in range(5)}))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
800 points: 1 values in five calls, draws from the generator: False, max_cholesky_size(10_000): 1
801 points: 5 values in five calls, draws from the generator: True, max_cholesky_size(10_000): 1
SEEN
