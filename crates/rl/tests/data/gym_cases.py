"""Environments that tests/all/gym.rs steps through Python processes."""

import os
import pathlib
import signal
import time

import gymnasium
import numpy
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


class RoundedCartPole(CartPoleEnv):
    """Gymnasium's, from first states that are whole f32 numbers, so that an observation tells the state."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.state = observation.astype(numpy.float64)
        return observation, info


class Counter(gymnasium.Env):
    """Shows the seed and how many steps there were, ends after `length` steps, and fails at step `at`, if `how`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Box(-numpy.inf, numpy.inf, (2,), numpy.float64)
    action_space = spaces.Discrete(3, start=-1)

    def __init__(self, length=5, truncates=False, how=None, at=2, marker=None, render_mode=None):
        self.length, self.truncates, self.how, self.at = length, truncates, how, at
        # A failure is not repeated where its file is there.
        self.marker = None if marker is None else pathlib.Path(marker)
        self.render_mode = render_mode

    def seen(self):
        return numpy.array([self.seed, self.steps])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("printed by an environment")
        self.seed, self.steps = seed % 1000, 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        if self.how and self.steps == self.at and not (self.marker and self.marker.exists()):
            if self.marker:
                self.marker.touch()
            self.fail()
        over = self.steps == self.length
        seen = self.seen()
        if self.how == "nan":
            seen = seen * numpy.nan
        if self.how == "shape":
            seen = seen[:1]
        return seen, 0.5 * action, over and not self.truncates, over and self.truncates, {}

    def fail(self):
        if self.how == "raise":
            raise RuntimeError("the tower fell")
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "signals":
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), each)
        if self.how == "hang":
            time.sleep(1000)

    def render(self):
        picture = numpy.zeros((4, 6, 3), numpy.uint8)
        picture[:, : self.steps] = (200, 30, 10)
        return picture


class Named(gymnasium.Env):
    """Shows a dictionary, and wants bits."""

    observation_space = spaces.Dict(
        place=spaces.Box(-1, 1, (2,)),
        kind=spaces.Discrete(3, start=5),
        both=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
    )
    action_space = spaces.MultiBinary(3)

    def seen(self, kind):
        bits, numbers = numpy.array([1, 0], numpy.int8), numpy.array([1, 2])
        return {"kind": kind, "place": numpy.array([0.5, -0.5], numpy.float32), "both": (bits, numbers)}

    def reset(self, *, seed=None, options=None):
        return self.seen(5), {}

    def step(self, action):
        assert action.shape == (3,) and action.dtype == numpy.int8
        return self.seen(7), float(action @ [1, 2, 4]), False, False, {}


class Image(gymnasium.Env):
    """Shows pixels with their channels last, and wants two whole numbers."""

    observation_space = spaces.Box(0, 255, (40, 36, 3), numpy.uint8)
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        image = numpy.zeros((40, 36, 3), numpy.uint8)
        image[0, 1, 2] = 7
        return image, {}

    def step(self, action):
        return self.reset()[0], float(action[1]), False, False, {}


class Texts(gymnasium.Env):
    observation_space = spaces.Dict(inside=spaces.Tuple((spaces.Text(5),)))
    action_space = spaces.Discrete(2)


class Plans(gymnasium.Env):
    observation_space = spaces.Box(0, 1)
    action_space = spaces.Dict(go=spaces.Discrete(2))


class Nothing:
    pass


class Pair:
    """A parallel environment as PettingZoo has it: an agent gets its action, and `b` a bonus; `b` may leave early."""

    metadata = {"name": "pair"}

    def __init__(self, length=6, leaves=None, bonus=10, differ=False, nobody=False):
        self.length, self.leaves, self.bonus, self.differ = length, leaves, bonus, differ
        self.possible_agents = [] if nobody else ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(-numpy.inf, numpy.inf, (3 if self.differ and agent == "b" else 2,), numpy.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def seen(self):
        return {agent: numpy.array([self.seed + 0.5 * (agent == "b"), self.steps]) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.steps, self.seed = list(self.possible_agents), 0, seed % 1000
        return self.seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), f"{set(actions)} act, and {self.agents} are there"
        self.steps += 1
        seen, infos = self.seen(), {agent: {} for agent in self.agents}
        rewards = {agent: float(actions[agent] + self.bonus * (agent == "b")) for agent in self.agents}
        terminated = {agent: agent == "b" and self.steps == self.leaves for agent in self.agents}
        truncated = {agent: self.steps == self.length for agent in self.agents}
        self.agents = [agent for agent in self.agents if not terminated[agent] and not truncated[agent]]
        return seen, rewards, terminated, truncated, infos

    def close(self):
        pass
