#!/usr/bin/env bash
# Gymnasium's NormalizeReward: its running return continues into the next episode if a time limit ended the last one.
#
# Guess, written down first: the wrapper scales rewards by the deviation of discounted returns. A return belongs to one
# episode, so it restarts with each reset, whether the last episode was terminated or truncated.
#
# Seen on 2026-11-29 with gymnasium 1.2.2 (numpy 2.4.6, Python 3.11): with a reward of 1 a step, gamma 0.9 and a limit
# of three steps, the returns are 1, 1.9, 2.71 and then, after reset, 3.439 instead of 1. They approach 10, which no
# episode of three steps can reach. If an episode is terminated, the return restarts, but a step early: the episode's
# last reward is the first of the next return (1, 1.9, 1, 1.9, 2.71, 1, …).
#
# Source: NormalizeReward.step multiplies the running return by `1 - terminated`, and reset does not change it. Its page
# describes an exponential moving average with a fixed variance, and does not mention episodes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gymnasium==1.2.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np


class Steady(gymnasium.Env):
    """A reward of 1 a step; ends by itself after `steps`, if that is given."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, steps=None):
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.zeros(1, np.float32), 1.0, self.taken == self.steps, False, {}


def returns(env):
    kept = []
    for _ in range(20):
        env.reset()
        for _ in range(3):
            env.step(0)
            kept.append(round(float(np.asarray(env.discounted_reward).item()), 3))
    return kept


truncated = returns(gymnasium.wrappers.NormalizeReward(gymnasium.wrappers.TimeLimit(Steady(), 3), gamma=0.9))
terminated = returns(gymnasium.wrappers.NormalizeReward(Steady(3), gamma=0.9))
print(gymnasium.__version__, "truncated", truncated[:6], "at most", max(truncated))
print("terminated", terminated[:9], "at most", max(terminated))
assert truncated[:4] == [1.0, 1.9, 2.71, 3.439] and max(truncated) > 9.9, truncated
assert terminated[:9] == [1.0, 1.9, 1.0, 1.9, 2.71, 1.0, 1.9, 2.71, 1.0], terminated
PY
