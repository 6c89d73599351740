#!/usr/bin/env bash
# A reward of 1 is 70 at the first step, and 2 at the second. gymnasium 1.4.0, numpy 2.4.6.
# Guess: NormalizeReward divides by the deviation of the returns, so that what it gives is of the order of 1; in the first steps it
# changes little, as an average that begins at 1 does.
# Seen: after one reward, the deviation of it is about a hundredth of it, since the variance of 1 that it begins with has no weight. So
# the first reward of each environment is up to a hundred times those that follow, one of 0.1 is 10, and a batch that begins with
# it teaches a value function that one number. `TransformReward(env, lambda reward: numpy.clip(reward, -10, 10))` bounds it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet gymnasium==1.4.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import gymnasium
import numpy

class Steady(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(1, numpy.float32), self.reward, False, False, {}

for reward in (1.0, -100.0, 0.1, 0.001):
    env = gymnasium.wrappers.NormalizeReward(Steady(reward))
    env.reset(seed=0)
    given = [float(env.step(0)[1]) for _ in range(200)]
    print(f"a reward of {reward}: {[round(each, 1) for each in given[:4]]}, at last {given[-1]:.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a reward of 1.0: [70.7, 2.0, 1.2, 0.9], at last 0.04
a reward of -100.0: [-100.0, -2.0, -1.2, -0.9], at last -0.04
a reward of 0.1: [10.0, 2.0, 1.2, 0.9], at last 0.04
a reward of 0.001: [0.1, 0.1, 0.2, 0.2], at last 0.04
SEEN
