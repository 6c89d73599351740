#!/usr/bin/env bash
# Rewards become smaller with each episode that a time limit ends. gymnasium 1.4.0.
# Guess: NormalizeReward divides by the deviation of the returns of an episode, however it ends.
# Seen: the return begins again where an episode has terminated, and goes on where it was truncated. Where only a time limit
# ends episodes, returns are sums over the whole training: with gamma=1, a reward shrinks for ever, and with 0.99 it is a
# fraction.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 gymnasium==1.4.0
cat > "$folder/tried.py" <<'CODE'
import gymnasium
import numpy
from gymnasium.wrappers import NormalizeReward


class Steps(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 10, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, terminates):
        self.terminates = terminates

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count == 5
        observation = numpy.full(1, self.count, numpy.float32)
        return observation, 1.0, over and self.terminates, over and not self.terminates, {}


for gamma in (1.0, 0.99):
    for terminates in (True, False):
        env = NormalizeReward(Steps(terminates), gamma=gamma)
        seen = []
        for _ in range(400):
            env.reset()
            rewards = [float(env.step(0)[1]) for _ in range(5)]
            seen.append(round(rewards[-1], 3))
        name = "terminated" if terminates else "truncated"
        print(f"gamma={gamma}, {name}: a reward of 1 is {seen[9]}, {seen[99]}, {seen[399]} in episodes 10, 100 and 400")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
gamma=1.0, terminated: a reward of 1 is 0.708, 0.707, 0.707 in episodes 10, 100 and 400
gamma=1.0, truncated: a reward of 1 is 0.069, 0.007, 0.002 in episodes 10, 100 and 400
gamma=0.99, terminated: a reward of 1 is 0.726, 0.725, 0.725 in episodes 10, 100 and 400
gamma=0.99, truncated: a reward of 1 is 0.088, 0.041, 0.067 in episodes 10, 100 and 400
SEEN
