#!/usr/bin/env bash
# The last update of PPO has a negative rate, and a second learn() begins at half the rate. stable-baselines3 2.9.2, torch
# 2.13.0, CPU.
# Guess: a linear schedule, `remaining * 3e-4`, goes from 3e-4 to 0, and a second learn() goes on with it or begins it again.
# Seen: whole rollouts are collected, so that 1,000 steps are 1,024, of which -0.024 remain: the last update climbs the loss.
# A second learn(1000, reset_num_timesteps=False) takes both for one run and begins near the half, behind a rate of 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet stable-baselines3==2.9.2 gymnasium==1.4.0
cat > "$folder/tried.py" <<'CODE'
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback


class Rates(BaseCallback):
    def _init_callback(self):
        self.seen = []

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        self.note()

    def note(self):
        self.seen.append(f"{self.model.policy.optimizer.param_groups[0]['lr']:.2e}")


model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, n_epochs=1, seed=0, learning_rate=lambda remaining: remaining * 3e-4)
for name, more in (("learn(1000)", {}), ("and again", {"reset_num_timesteps": False})):
    rates = Rates()
    model.learn(1000, callback=rates, **more)
    rates.note()
    print(f"{name}: rates of the updates {rates.seen[1:]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
learn(1000): rates of the updates ['2.23e-04', '1.46e-04', '6.96e-05', '-7.20e-06']
and again: rates of the updates ['1.10e-04', '7.23e-05', '3.44e-05', '-3.56e-06']
SEEN
