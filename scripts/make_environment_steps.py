"""Writes episodes of Gymnasium's classic environments, with which the tests of crates/rl compare their own.

    PYTHONPATH=... python3 scripts/make_environment_steps.py

Writes crates/rl/tests/data/gymnasium.json: for each environment some episodes (the states before, between and after the
steps, actions, rewards, flags, and the first and last observation), and Gymnasium's running statistics and normalized
rewards.

Made with Gymnasium 1.4.0, NumPy 2.4.6 and Python 3.11.
"""

import json
import math
import pathlib

import gymnasium
import numpy
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.utils import RunningMeanStd
from gymnasium.wrappers.vector import NormalizeReward

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data" / "gymnasium.json"


def at_random(env, rng):
    """A random action; continuous ones may exceed the bounds, and the environment clips them."""
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return int(rng.integers(env.action_space.n))
    return (1.3 * rng.uniform(env.action_space.low, env.action_space.high)).astype(numpy.float32)


def balance(env, rng):
    x, speed, angle, turn = env.unwrapped.state
    return int(angle + 0.5 * turn + 0.05 * x + 0.1 * speed + rng.normal(0, 0.02) > 0)


def pump(env, rng):
    """Pushes in the direction of movement, which gains energy."""
    if rng.random() < 0.1:
        return at_random(env, rng)
    velocity = env.unwrapped.state[-1]
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return 2 * int(velocity > 0)
    bound = env.action_space.high
    return (math.copysign(1, velocity) * rng.uniform(0.5, 1.2) * bound).astype(numpy.float32)


def plain(value):
    return float(value) if numpy.ndim(value) == 0 else [float(x) for x in value]


def episode(name, policy, seed, steps):
    """One episode, or its first steps."""
    env = gymnasium.make(name)
    rng = numpy.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    kept = {"states": [plain(env.unwrapped.state)], "actions": [], "rewards": [], "terminated": False, "truncated": False}
    kept["first"] = plain(observation)
    for _ in range(steps):
        action = policy(env, rng)
        observation, reward, kept["terminated"], kept["truncated"], _ = env.step(action)
        kept["states"].append(plain(env.unwrapped.state))
        kept["actions"].append(action if isinstance(action, int) else float(action[0]))
        kept["rewards"].append(float(reward))
        if kept["terminated"] or kept["truncated"]:
            break
    kept["last"] = plain(observation)
    return kept


EPISODES = {
    "CartPole-v1": [(balance, 1, 500), (at_random, 2, 500), (at_random, 3, 500)],
    "Acrobot-v1": [(pump, 1, 500), (at_random, 2, 150)],
    "MountainCar-v0": [(pump, 1, 200), (at_random, 2, 200)],
    "MountainCarContinuous-v0": [(pump, 1, 999), (at_random, 2, 150)],
    "Pendulum-v1": [(at_random, 1, 200), (pump, 2, 200)],
}


class Told(VectorEnv):
    """Three environments with given rewards and episode ends."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs = 3

    def __init__(self, rewards, terminated, truncated):
        self.steps = iter(zip(rewards, terminated, truncated))

    def reset(self, **_):
        return numpy.zeros((3, 1)), {}

    def step(self, _):
        return numpy.zeros((3, 1)), *next(self.steps), {}


def normalized_rewards():
    rng = numpy.random.default_rng(5)
    rewards = rng.normal(1, 3, (40, 3)).astype(numpy.float32)
    terminated, truncated = rng.random((40, 3)) < 0.1, rng.random((40, 3)) < 0.1
    env = NormalizeReward(Told(rewards, terminated, truncated), gamma=0.9)
    # Gymnasium sums returns in single precision, which would hide differences.
    env.accumulated_reward = env.accumulated_reward.astype(numpy.float64)
    env.reset()
    normalized = [env.step(None)[1].tolist() for _ in rewards]
    return {
        "rewards": rewards.astype(float).tolist(),
        "terminated": terminated.tolist(),
        "truncated": truncated.tolist(),
        "normalized": normalized,
    }


def running():
    rng = numpy.random.default_rng(4)
    batches = rng.normal([0, 5, -1], [1, 0.1, 30], (12, 4, 3)).astype(numpy.float32).astype(float)
    statistics = RunningMeanStd(shape=(3,))
    for batch in batches:
        statistics.update(batch)
    return {"batches": batches.tolist(), "mean": plain(statistics.mean), "var": plain(statistics.var), "count": statistics.count}


def main():
    environments = {
        name: {
            "limit": gymnasium.spec(name).max_episode_steps,
            "episodes": [episode(name, *settings) for settings in episodes],
        }
        for name, episodes in EPISODES.items()
    }
    kept = {"environments": environments, "running": running(), "normalized": normalized_rewards()}
    OUT.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    for name, entry in environments.items():
        print(name, [(len(e["actions"]), e["terminated"], e["truncated"]) for e in entry["episodes"]])
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
