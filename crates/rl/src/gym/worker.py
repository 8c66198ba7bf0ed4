"""Environments of Gymnasium in a process of their own.

Standard input has requests: a line of JSON that says what to make, one that says where the shared memory is, then `r`
for a reset and `s` for a step. Each is answered: `.`, or `j` (what was made) or `e` (what was thrown) before the length
and the bytes of a JSON text. Actions, observations and the rest are in the shared memory.
"""

import importlib.util
import json
import mmap
import os
import pathlib
import signal
import struct
import sys
import traceback


class Unfit(Exception):
    """What cannot be used here, in words that need no traceback."""


def describe(space, spaces, numpy, where):
    """A space that is understood, as JSON."""
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        start = getattr(space, "start", numpy.zeros_like(space.nvec))
        return {"type": "MultiDiscrete", "nvec": space.nvec.ravel().tolist(), "start": numpy.ravel(start).tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": int(numpy.prod(space.shape))}
    if isinstance(space, spaces.Box):
        with numpy.errstate(over="ignore"):
            bounds = [numpy.asarray(bound, dtype=numpy.float32) for bound in (space.low, space.high)]
        low, high = ([x if numpy.isfinite(x) else None for x in bound.ravel().tolist()] for bound in bounds)
        kind = {"uint8": "u8", "float64": "f64"}.get(space.dtype.name, "i64" if space.dtype.kind in "iu" else "f32")
        return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": kind}
    raise Unfit(f"{where} is {type(space).__name__}, which cannot be used: {space}")


def numbers(space, spaces, where):
    """What the numbers of a space are called once it is flattened, in the order of Gymnasium's `flatten`."""
    if isinstance(space, spaces.Dict):
        parts = [(f"{where}.{key}" if where else str(key), part) for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        parts = [(f"{where}.{index}" if where else str(index), part) for index, part in enumerate(space.spaces)]
    elif isinstance(space, spaces.Discrete):
        return [f"{where}={int(space.start) + value}" for value in range(int(space.n))]
    elif isinstance(space, spaces.MultiDiscrete):
        return [f"{where}[{index}]={value}" for index, n in enumerate(space.nvec.ravel()) for value in range(int(n))]
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)):
        length = spaces.flatdim(space)
        return [where] if length == 1 else [f"{where}[{index}]" for index in range(length)]
    else:
        raise Unfit(f"the observation's {where} is {type(space).__name__}, which cannot be used: {space}")
    return [name for where, part in parts for name in numbers(part, spaces, where)]


class Observer:
    """Writes observations as rows of numbers."""

    def __init__(self, space, spaces, numpy):
        self.numpy, self.array, self.flatten = numpy, numpy.ndarray, None
        self.names, self.axes, self.shape = [], None, tuple(space.shape or ())
        self.nothing = getattr(space, "start", 0)
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            self.names = numbers(space, spaces, "")
            self.flatten = lambda value, own=space: spaces.flatten(own, value)
            space = spaces.flatten_space(space)
            self.shape = space.shape
        self.described = describe(space, spaces, numpy, "the observation")
        if isinstance(space, spaces.Box):
            self.described["shape"] = self.image(space) or [len(self.described["low"])]

    def image(self, space):
        """Channels, height and width, where bytes are an image. Gymnasium has the channels last, networks first."""
        if space.dtype != self.numpy.uint8 or len(self.shape) not in (2, 3):
            return None
        if len(self.shape) == 2:
            return [1, *self.shape]
        if self.shape[2] in (1, 3, 4) and self.shape[0] not in (1, 3, 4):
            self.axes = (2, 0, 1)
            bounds = [self.described[name] for name in ("low", "high")]
            for name, bound in zip(("low", "high"), bounds):
                self.described[name] = self.numpy.reshape(bound, self.shape).transpose(self.axes).ravel().tolist()
        return [self.shape[axis] for axis in self.axes or (0, 1, 2)]

    def place(self, row):
        """A row of numbers, laid out as an observation is."""
        if self.axes is None:
            return row.reshape(self.shape)
        return row.reshape(self.described["shape"]).transpose(self.numpy.argsort(self.axes))

    def write(self, place, observation):
        if observation is None:
            place[...] = self.nothing
            return
        if self.flatten is not None:
            observation = self.flatten(observation)
        shape = observation.shape if isinstance(observation, self.array) else self.numpy.shape(observation)
        if shape != self.shape:
            raise ValueError(f"an observation has the shape {shape}, not that of its space, {self.shape}")
        place[...] = observation


class Actor:
    """Reads actions as environments want them."""

    def __init__(self, space, spaces, numpy):
        self.described = describe(space, spaces, numpy, "the action")
        self.numpy, self.shape, self.dtype = numpy, space.shape, space.dtype
        self.one = isinstance(space, spaces.Discrete)

    def read(self, actions):
        if self.one:
            return actions[:, 0].astype(int).tolist()
        if self.numpy.issubdtype(self.dtype, self.numpy.integer):
            actions = self.numpy.rint(actions)
        return actions.astype(self.dtype).reshape(len(actions), *self.shape)


class Team:
    """The agents of a parallel environment of PettingZoo, as rows whose episodes end together.

    The row of an agent that is gone shows zeros and gets no reward until all are.
    """

    def __init__(self, env):
        self.env, self.agents = env, list(env.possible_agents)
        if not self.agents:
            raise Unfit("the environment has no agents")
        self.metadata, self.spec = getattr(env, "metadata", None), None
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space, self.action_space = map(self.same, (env.observation_space, env.action_space))
        self.rows, self.ended = len(self.agents), {}

    def same(self, space):
        """The space of all agents, which have one policy."""
        spaces = {agent: space(agent) for agent in self.agents}
        first = spaces[self.agents[0]]
        for agent, other in spaces.items():
            if other != first:
                raise Unfit(f"agents differ in their spaces, and learn one policy: {first} and {other} of {agent}")
        return first

    def reset(self, seed):
        seen, _ = self.env.reset(seed=seed)
        self.ended = {}
        return [seen[agent] for agent in self.agents]

    def step(self, actions, row, put):
        """Puts what is seen, nothing by agents that are gone, and rewards and flags of all rows, the first of which is
        `row`; returns whether the episode is over."""
        actions = actions[row : row + self.rows]
        own = {agent: action for agent, action in zip(self.agents, actions) if agent not in self.ended}
        seen, rewards, terminated, truncated, _ = self.env.step(own)
        for agent in own:
            if terminated[agent] or truncated[agent]:
                self.ended[agent] = bool(terminated[agent]) | bool(truncated[agent]) << 1
        over = len(self.ended) == self.rows
        for place, agent in enumerate(self.agents, row):
            observation, reward = (seen[agent], float(rewards[agent])) if agent in own else (None, 0.0)
            put(place, observation, reward, self.ended[agent] if over else 0)
        return over

    def render(self):
        return self.env.render()

    def close(self):
        self.env.close()


class Single:
    """An environment of Gymnasium: one row."""

    rows = 1

    def __init__(self, env):
        self.env = env

    def reset(self, seed):
        return [self.env.reset(seed=seed)[0]]

    def step(self, actions, row, put):
        observation, reward, terminated, truncated, _ = self.env.step(actions[row])
        flags = bool(terminated) | bool(truncated) << 1
        put(row, observation, float(reward), flags)
        return flags != 0

    def __getattr__(self, name):
        return getattr(self.env, name)


def entry(gymnasium, name):
    """What makes an environment of this name: `ID`, `MODULE:ID`, `MODULE:parallel_env` of PettingZoo, or
    `FILE.py:CLASS`, `FILE.py:ID`."""
    file, _, attribute = name.rpartition(":")
    if file and attribute == "parallel_env" and not file.endswith(".py"):
        return importlib.import_module(file).parallel_env
    if not file.endswith(".py"):
        return lambda **args: gymnasium.make(name, **args)
    path = pathlib.Path(file).resolve()
    if not path.is_file():
        raise Unfit(f"there is no file {file}")
    sys.path.insert(0, str(path.parent))
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    made = getattr(module, attribute, None)
    if made is None and attribute in gymnasium.registry:
        return lambda **args: gymnasium.make(attribute, **args)
    if not callable(made):
        raise Unfit(f"{file} has no class {attribute}, and registers no environment of this name")

    def make(max_episode_steps=None, **args):
        env = made(**args)
        if hasattr(env, "possible_agents"):
            return env
        if not isinstance(env, gymnasium.Env):
            raise Unfit(f"{attribute} of {file} makes {type(env).__name__}, which is no gymnasium.Env")
        return gymnasium.wrappers.TimeLimit(env, max_episode_steps) if max_episode_steps else env

    return make


def limit(env):
    """Steps of an episode, as the time limit around the environment says."""
    while env is not None:
        steps = getattr(env, "_max_episode_steps", None)
        if isinstance(steps, int):
            return steps
        env = env.__dict__.get("env")
    return None


class Worker:
    def __init__(self, request):
        import gymnasium
        import numpy

        if int(gymnasium.__version__.split(".")[0]) < 1:
            raise Unfit(f"gymnasium {gymnasium.__version__} is too old: 1.0 or newer is needed")
        self.numpy, self.plays = numpy, request["play"]
        made, args = entry(gymnasium, request["name"]), request["args"]

        def make(**args):
            env = made(**args)
            return Team(env) if hasattr(env, "possible_agents") else Single(env)

        self.envs = [make(**args) for _ in range(request["envs"])]
        first = self.envs[0]
        if self.plays and "rgb_array" in (first.metadata or {}).get("render_modes", ()):
            first.close()
            first = make(**{**args, "render_mode": "rgb_array"})
            self.envs[0] = first
        self.observer = Observer(first.observation_space, gymnasium.spaces, numpy)
        self.actor = Actor(first.action_space, gymnasium.spaces, numpy)
        spec = first.spec
        self.made = {
            "agents": first.rows,
            "gymnasium": gymnasium.__version__,
            "numpy": numpy.__version__,
            "python": sys.version.split()[0],
            "observation": self.observer.described,
            "names": self.observer.names,
            "action": self.actor.described,
            "max_episode_steps": limit(first.env),
            "reward_threshold": spec.reward_threshold if spec is not None else None,
            "fps": (first.metadata or {}).get("render_fps"),
        }
        if self.plays:
            self.made["picture"] = self.sized()

    def sized(self):
        """Height and width of a picture, or why there is none."""
        try:
            if self.envs[0].render_mode != "rgb_array":
                return "it has no render_mode rgb_array"
            self.envs[0].reset(0)
            return list(self.numpy.asarray(self.envs[0].render()).shape[:2])
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def share(self, request):
        """Maps the shared memory, in which each part has its place."""
        with open(request["path"], "r+b") as file:
            memory = mmap.mmap(file.fileno(), request["size"])
        numpy, count = self.numpy, sum(env.rows for env in self.envs)

        def part(name, dtype, *shape):
            return numpy.frombuffer(memory, dtype, int(numpy.prod(shape)), request[name]).reshape(shape)

        width, place = request["observation_len"], self.observer.place
        self.actions = part("actions", numpy.float32, count, request["action_len"])
        self.seeds = part("seeds", numpy.int64, count)
        self.rewards = part("rewards", numpy.float64, count)
        self.flags = part("flags", numpy.uint8, count)
        self.observations = [place(row) for row in part("observations", numpy.float32, count, width)]
        self.finals = [place(row) for row in part("finals", numpy.float32, count, width)]
        self.picture = part("picture", numpy.uint8, request["picture_len"])

    def reset(self, env, row):
        for place, observation in zip(self.observations[row:], env.reset(int(self.seeds[row]))):
            self.observer.write(place, observation)

    def reset_all(self):
        row = 0
        for env in self.envs:
            self.reset(env, row)
            row += env.rows
        self.draw()

    def step_all(self):
        actions, row = self.actor.read(self.actions), 0
        for env in self.envs:
            if env.step(actions, row, self.put) and not self.plays:
                self.reset(env, row)
            row += env.rows
        self.draw()

    def put(self, row, observation, reward, flags):
        self.rewards[row], self.flags[row] = reward, flags
        # All rows of an environment end together, and show the next episode after that.
        ended = flags and not self.plays
        self.observer.write((self.finals if ended else self.observations)[row], observation)

    def draw(self):
        if self.plays and self.picture.size:
            self.picture[:] = self.numpy.asarray(self.envs[0].render(), dtype=self.numpy.uint8)[..., :3].ravel()


def write(file, rest):
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except BrokenPipeError:
        # Nobody is there to hear it.
        sys.exit(0)


def answer(file, kind, value):
    text = json.dumps(value).encode()
    write(file, kind + struct.pack("<I", len(text)) + text)


def line(file):
    """A line of JSON; nothing comes behind it before it is answered."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(file, 1 << 16)
        if not part:
            sys.exit(0)
        text += part
    return json.loads(text)


def told(error, missing):
    """What was thrown and where, in a line; the whole of it goes to standard error, as Python does it."""
    if isinstance(error, Unfit):
        return str(error)
    what = f"{type(error).__name__}: {error}"
    if missing or type(error).__module__ == "gymnasium.error":
        return what
    traceback.print_exc()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    return ", ".join([what, *(f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[::-1])])


def main():
    # The program that started this process ends it, also if a signal to all of them asks it to stop. What environments
    # print must not be taken for an answer.
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        worker = Worker(line(requests))
        answer(answers, b"j", worker.made)
        worker.share(line(requests))
        write(answers, b".")
        work = {b"r": worker.reset_all, b"s": worker.step_all}
        while request := os.read(requests, 1):
            work[request]()
            write(answers, b".")
        for env in worker.envs:
            env.close()
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == 0:
            return
        missing = None
        if isinstance(error, ModuleNotFoundError):
            missing = error.name or getattr(error.__cause__, "name", None)
        answer(answers, b"e", {"what": told(error, missing), "missing": missing})
        sys.exit(1)


main()
