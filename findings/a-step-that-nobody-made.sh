#!/usr/bin/env bash
# A vectorised environment gives a step that nobody made, between two episodes. gymnasium 1.4.0, numpy 2.4.6.
# Guess: as in gymnasium before 1.0 and in stable-baselines3, the step that ends an episode begins the next one; each step() is one
# transition of the environment, and has a reward of it.
# Seen: the end comes first, and the next step() begins the new episode: it ignores the action, its reward is 0 and it is not the
# end. A loop that stores (observation, action, reward, next) has one transition from the last state of an episode to the first
# one of the next in each episode, which a target bootstraps through. `autoreset_mode=AutoresetMode.SAME_STEP` is as before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet gymnasium==1.4.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import gymnasium
import numpy

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 3, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return numpy.array([0], numpy.float32), {}

    def step(self, action):
        self.place += 1
        return numpy.array([self.place], numpy.float32), 1.0, self.place == 3, False, {}

for name, options in (("by default", {}), ("SAME_STEP", {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP})):
    walks = gymnasium.vector.SyncVectorEnv([Walk, Walk], **options)
    now, _ = walks.reset(seed=0)
    stored = []
    for _ in range(8):
        following, rewards, ends, _, _ = walks.step(numpy.ones(2, int))
        stored.append((int(now[0, 0]), int(following[0, 0]), float(rewards[0]), "end" if ends[0] else ""))
        now = following
    print(name, *stored)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
by default (0, 1, 1.0, '') (1, 2, 1.0, '') (2, 3, 1.0, 'end') (3, 0, 0.0, '') (0, 1, 1.0, '') (1, 2, 1.0, '') (2, 3, 1.0, 'end') (3, 0, 0.0, '')
SAME_STEP (0, 1, 1.0, '') (1, 2, 1.0, '') (2, 0, 1.0, 'end') (0, 1, 1.0, '') (1, 2, 1.0, '') (2, 0, 1.0, 'end') (0, 1, 1.0, '') (1, 2, 1.0, '')
SEEN
