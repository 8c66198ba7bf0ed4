#!/usr/bin/env bash
# Gymnasium's make_vec: what a seed gives depends on the vectorization mode, which it chooses itself.
#
# Guess, written down first: make_vec("CartPole-v1", num_envs=2).reset(seed=0) begins as two environments of
# make("CartPole-v1") do that are reset with the seeds 0 and 1, in each vectorization mode: modes differ in speed.
#
# Seen on 2026-11-30 with gymnasium 1.4.0 and numpy 2.4.6 (Python 3.11): the modes "sync" and "async" do so. The default
# takes a vector entry point, if the environment has registered one, as CartPole has: its rows are drawn from one
# generator, number by number across the environments. Row 0 has the first and third number of seed 0, not its first
# two, so that no row is the episode of any single environment with this seed. The same line gives other episodes after
# an environment has gained or lost its entry point.
#
# Source: SyncVectorEnv.reset documents seed + i for environment i. CartPoleVectorEnv.reset draws an array of shape
# [4, num_envs] and transposes it. make_vec's page does not mention seeds.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gymnasium==1.4.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np


def first(**settings):
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2, **settings)
    seen = envs.reset(seed=0)[0]
    envs.close()
    return seen


single = np.stack([gymnasium.make("CartPole-v1").reset(seed=seed)[0] for seed in (0, 1)])
default, sync = first(), first(vectorization_mode="sync")
for name, seen in [("single, seeds 0 and 1", single), ("sync", sync), ("default", default)]:
    print(f"{name}:", *seen.round(4).astype(str).tolist())
assert np.array_equal(sync, single) and not (default[:, None] == single).all(-1).any()
assert default[0, 0] == single[0, 0] and default[1, 0] == single[0, 1] and default[0, 1] == single[0, 2]
assert np.array_equal(first(vectorization_mode="vector_entry_point"), default)
PY
