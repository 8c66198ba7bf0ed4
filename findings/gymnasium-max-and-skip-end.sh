#!/usr/bin/env bash
# Gymnasium's MaxAndSkipObservation: an episode that ends early in its frames is observed as older frames, or as zeros.
#
# Guess, written down first: the wrapper repeats an action, and returns the maximum of the last two frames. If the
# episode ends before all frames were taken, it returns that of the last two that there were, or the last one.
#
# Seen on 2026-11-30 with gymnasium 1.4.0 and numpy 2.4.6 (Python 3.11): frames are only stored at the last two places
# of the window. If the episode ends before these, the observation is the one of the step before, and in an episode's
# first step zeros. With a window of 4, frames numbered 10, 20, … and an end at the sixth, the second step shows 40,
# not 60, together with terminated=True; with an end at the second frame, the first step shows 0. A truncated episode is
# then bootstrapped from a state that it was not in.
#
# Source: MaxAndSkipObservation.step writes its buffer at `i == skip - 2` and `i == skip - 1`, and breaks at the end of
# an episode. Its page says that it takes the maximum over the last two frames, and nothing of episodes' ends.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gymnasium==1.4.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np


class Numbered(gymnasium.Env):
    """Frames 10, 20, …; ends after `length` of them."""

    observation_space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frames = 0
        return np.array([5], np.uint8), {}

    def step(self, action):
        self.frames += 1
        return np.array([10 * self.frames], np.uint8), 1.0, self.frames == self.length, False, {}


def seen(length):
    env = gymnasium.wrappers.MaxAndSkipObservation(Numbered(length), skip=4)
    env.reset()
    steps, over = [], False
    while not over:
        observation, reward, over, _, _ = env.step(0)
        steps.append((int(observation[0]), float(reward), over))
    return steps


for length in (8, 6, 2):
    print(f"{length} frames:", seen(length))
assert seen(8) == [(40, 4.0, False), (80, 4.0, True)]
assert seen(6) == [(40, 4.0, False), (40, 2.0, True)], "the sixth frame is 60"
assert seen(2) == [(0, 2.0, True)], "the second frame is 20"
PY
