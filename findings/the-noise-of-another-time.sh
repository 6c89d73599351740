#!/usr/bin/env bash
# A scheduler adds the most noise where a model is told that there is the least. diffusers 0.42.1, torch 2.13.0, CPU.
# Guess: add_noise(images, noise, t) of each scheduler with one table of betas adds the noise of time t, and a time that it cannot add is
# refused; so a model can be trained with the scheduler that its pipeline samples by.
# Seen: a fresh DPMSolverMultistepScheduler, DEIS or UniPC counts backwards: at 100 of 1,000, it adds the noise of 899. After
# set_timesteps(20), which a validation calls, times that are not among these 20 get the noise of the last one, 50, without a word:
# most batches of the training from then on. DDPM, DDIM and PNDM add what they are asked for, and Euler refuses such times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet diffusers==0.42.1
cat > "$folder/tried.py" <<'CODE'
import diffusers
import torch

images, noise = torch.zeros(4, 3, 64, 64), torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
times = torch.tensor([100, 300, 500, 800])

def deviations(scheduler):
    noisy = scheduler.add_noise(images, noise, times)
    return [round(each, 1) for each in noisy.std((1, 2, 3)).tolist()]

print("at times", times.tolist())
for name in ("DDPM", "DDIM", "PNDM", "DPMSolverMultistep", "DEISMultistep", "UniPCMultistep"):
    scheduler = getattr(diffusers, f"{name}Scheduler")()
    fresh = deviations(scheduler)
    scheduler.set_timesteps(20)
    print(f"{name}: noise {fresh}, after set_timesteps(20) {deviations(scheduler)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
at times [100, 300, 500, 800]
DDPM: noise [0.3, 0.8, 1.0, 1.0], after set_timesteps(20) [0.3, 0.8, 1.0, 1.0]
DDIM: noise [0.3, 0.8, 1.0, 1.0], after set_timesteps(20) [0.3, 0.8, 1.0, 1.0]
PNDM: noise [0.3, 0.8, 1.0, 1.0], after set_timesteps(20) [0.3, 0.8, 1.0, 1.0]
DPMSolverMultistep: noise [1.0, 1.0, 1.0, 0.6], after set_timesteps(20) [0.3, 0.8, 1.0, 0.2]
DEISMultistep: noise [1.0, 1.0, 1.0, 0.6], after set_timesteps(20) [0.3, 0.8, 1.0, 0.2]
UniPCMultistep: noise [1.0, 1.0, 1.0, 0.6], after set_timesteps(20) [0.3, 0.8, 1.0, 0.2]
SEEN
