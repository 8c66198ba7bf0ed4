"""Environments in Rust for Gymnasium: ``gymnasium.make("polygrad/CartPole-v0")``, or ``make_vec`` for many at once.

They are registered once ``polygrad`` and ``gymnasium`` are imported, in any order.
"""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ._polygrad import Environments

__all__ = ["IDS", "Env", "VectorEnv"]

IDS = {
    "polygrad/CartPole-v0": "cartpole",
    "polygrad/Acrobot-v0": "acrobot",
    "polygrad/MountainCar-v0": "mountain-car",
    "polygrad/MountainCarContinuous-v0": "mountain-car-continuous",
    "polygrad/Pendulum-v0": "pendulum",
    "polygrad/TMaze-v0": "t-maze",
    "polygrad/GridWorld-v0": "grid-world",
}
"""The environments' ids, and their names on the command line. The first five are Gymnasium's own environments."""


def _space(text: str) -> spaces.Space:
    space = json.loads(text)
    kind = space.pop("type")
    if kind == "Box":
        low, high = (
            np.array([end if x is None else x for x in space[side]], "float32").reshape(space["shape"])
            for side, end in (("low", -np.inf), ("high", np.inf))
        )
        return spaces.Box(low, high, dtype=np.float32)
    made: Any = getattr(spaces, kind)
    return made(**space)


class Env(gymnasium.Env):
    """One environment. It cannot be rendered here; use ``polygrad play`` on the command line."""

    metadata = {"render_modes": []}

    def __init__(self, name: str, render_mode: None = None) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode={render_mode!r}: the environments are not drawn here; leave it out")
        self.render_mode = None
        self._over = False
        self._envs = Environments(name, 1, 1)
        self.observation_space, self.action_space = map(_space, self._envs.spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; see ``gymnasium.Env.reset``."""
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(2**31)) if seed is None else seed
        self._over = False
        return self._envs.reset(chosen)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes an action; see ``gymnasium.Env.step``."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        seen, rewards, terminated, truncated, last = self._envs.step(np.asarray(action))
        # In Rust the next episode has already begun.
        self._over = last is not None
        return (seen if last is None else last)[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}


class VectorEnv(gymnasium.vector.VectorEnv):
    """Many environments that step together in Rust, in ``threads`` threads.

    The step that ends an episode begins the next one, ``AutoresetMode.SAME_STEP``; the last observation is then in
    ``infos["final_obs"]``.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, name: str, num_envs: int = 1, threads: int = 1) -> None:
        self.num_envs = num_envs
        self.render_mode = None
        self._envs = Environments(name, num_envs, threads)
        self.single_observation_space, self.single_action_space = map(_space, self._envs.spaces)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in each; ``seed`` determines all randomness. See ``gymnasium.vector.VectorEnv.reset``."""
        super().reset(seed=seed)
        if options and "reset_mask" in options:
            raise ValueError("the environments begin their episodes themselves, and not by reset_mask")
        return self._envs.reset(int(self.np_random.integers(2**31)) if seed is None else seed), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes an action in each; see ``gymnasium.vector.VectorEnv.step``."""
        seen, rewards, terminated, truncated, last = self._envs.step(np.asarray(actions))
        infos: dict[str, Any] = {}
        if last is not None:
            ended = terminated | truncated
            final = np.full(self.num_envs, None, dtype=object)
            for row in np.flatnonzero(ended):
                final[row] = last[row]
            infos = {"final_obs": final, "_final_obs": ended, "final_info": {}, "_final_info": ended}
        return seen, rewards, terminated, truncated, infos


for _id, _name in IDS.items():
    gymnasium.register(_id, "polygrad.envs:Env", vector_entry_point="polygrad.envs:VectorEnv", kwargs={"name": _name})
