#!/usr/bin/env bash
# Gymnasium's TimeAwareObservation: the time in an observation counts up, where its documentation has what remains.
#
# Guess, written down first: with normalize_time=False the observation has the remaining time steps before truncation,
# as the argument's documentation says: the limit at the beginning, 0 at the end. With normalize_time=True it goes
# from 1 to 0, or from 0 to 1.
#
# Seen on 2026-11-30 with gymnasium 1.4.0 and numpy 2.4.6 (Python 3.11): both count the steps that have passed: 0, 1,
# … up to the limit, and 0 to 1. A policy that was written or trained for what remains does the opposite near the end.
#
# Source: TimeAwareObservation.__init__ documents normalize_time: "if `True` return time in the range [0,1] otherwise
# return time as remaining timesteps before truncation"; observation() passes `self.timesteps`, which step() increments.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gymnasium==1.4.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import gymnasium


def times(normalized):
    env = gymnasium.make("CartPole-v1", max_episode_steps=4)
    env = gymnasium.wrappers.TimeAwareObservation(env, normalize_time=normalized)
    found = [float(env.reset(seed=0)[0][-1])]
    for step in range(4):
        observation, _, _, truncated, _ = env.step(step % 2)
        found.append(float(observation[-1]))
    assert truncated
    return found


told = gymnasium.wrappers.TimeAwareObservation.__init__.__doc__
print("documented: ", " ".join(told[told.index("normalize_time:") :].split()[:18]))
print("as steps:   ", times(False))
print("normalized: ", times(True))
assert "remaining timesteps before truncation" in " ".join(told.split())
assert times(False) == [0.0, 1.0, 2.0, 3.0, 4.0] and times(True) == [0.0, 0.25, 0.5, 0.75, 1.0]
PY
