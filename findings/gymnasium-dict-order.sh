#!/usr/bin/env bash
# Gymnasium's Dict: two spaces that are equal put the same observation into flat arrays in different orders.
#
# Guess, written down first: a Dict keeps the order in which its parts are written, as Python's dict does, or it always
# sorts them; spaces that compare as equal flatten an observation to the same array; and the space of a batch, as a
# vector environment has it, has the order of the single one.
#
# Seen on 2026-11-29 with gymnasium 1.4.0 and numpy 2.4.6 (Python 3.11): Dict({"z": …, "a": …}) sorts its keys, and
# Dict(z=…, a=…) does not. They are equal (==), but the first flattens an observation to [a, z] and the second to
# [z, a], and their flattened spaces are not equal. batch_space of the second sorts again, so a vector environment's
# batched space has another order than its single one. A policy that was trained on flat arrays of one gets the other's
# without an error, where extents are the same.
#
# Source: https://gymnasium.farama.org/api/spaces/composite/#gymnasium.spaces.Dict (sort_keys, which tells of mappings
# and sequences, not of keywords, equality or batches).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gymnasium==1.4.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space


def between(low, high):
    return spaces.Box(low, high, (1,), np.float32)


parts = {"z": between(0, 1), "a": between(2, 3)}
observation = {"z": np.array([0.5], np.float32), "a": np.array([2.5], np.float32)}
by_mapping, by_keywords = spaces.Dict(parts), spaces.Dict(**parts)
flat = [spaces.flatten(space, observation).tolist() for space in (by_mapping, by_keywords)]
print("keys:", list(by_mapping), "and", list(by_keywords), "- equal:", by_mapping == by_keywords)
print("the same observation, flattened:", *flat)
assert by_mapping == by_keywords and flat == [[2.5, 0.5], [0.5, 2.5]]
assert spaces.flatten_space(by_mapping) != spaces.flatten_space(by_keywords)
print("a batch of the second:", list(batch_space(by_keywords, 2)))
assert list(batch_space(by_keywords, 2)) == ["a", "z"]
PY
