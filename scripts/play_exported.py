"""Plays a policy that Polygrad exported, in Gymnasium with ONNX Runtime, and prints its returns.

    pip install gymnasium onnxruntime
    python3 scripts/play_exported.py policy.onnx --env CartPole-v1 --episodes 100

Actions are the likeliest ones; continuous ones are clipped to the environment's bounds. The model's inputs are
`observation [N, …]`, `mask [N, outputs]` if there is one (Gymnasium's `action_mask`, or all actions), and for a policy
with memory `state_0`, …, which begin as zeros and become `next_state_0`, …; its output is `logits`, `mean` or `action`,
`[N, outputs]`. Prints the mean return and its standard error.
"""

import argparse
import pathlib
import sys

import gymnasium
import numpy
import onnxruntime
from gymnasium import spaces

DTYPES = {"tensor(float)": numpy.float32, "tensor(double)": numpy.float64, "tensor(uint8)": numpy.uint8, "tensor(bool)": numpy.bool_}


class Player:
    """A policy that plays one episode at a time."""

    def __init__(self, file, env):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(pathlib.Path(file).read_bytes(), options, providers=["CPUExecutionProvider"])
        self.inputs = {x.name: x for x in self.session.get_inputs()}
        self.space = env.action_space
        given = {x.name for x in self.session.get_outputs()}
        continuous = "action" if "action" in given else "mean"
        self.output = continuous if isinstance(self.space, spaces.Box) else "logits"
        self.states = [name for name in self.inputs if name.startswith("state_")]
        wanted = {self.output, *(f"next_{name}" for name in self.states)}
        if strange := set(self.inputs) - {"observation", "mask", *self.states}:
            raise ValueError(f"{file} has the inputs {sorted(strange)}, of which nobody knows what they are")
        if "observation" not in self.inputs or not wanted <= given:
            raise ValueError(f"{file} must take observation and give {sorted(wanted)} for {self.space}; it gives {sorted(given)}")
        batch, *shape = self.inputs["observation"].shape
        if batch not in (1, None) and not isinstance(batch, str):
            raise ValueError(f"{file} takes {batch} observations at once, not one: export it with a batch of any size")
        if shape != list(env.observation_space.shape):
            raise ValueError(f"{file} takes observations of {shape}; those of {env.spec.id} are {env.observation_space.shape}")

    def zeros(self, name):
        """Zeros for a batch of one."""
        shape = [x if isinstance(x, int) else 1 for x in self.inputs[name].shape]
        return numpy.zeros(shape, DTYPES[self.inputs[name].type])

    def begin(self):
        self.state = {name: self.zeros(name) for name in self.states}

    def act(self, observation, info):
        dtype = DTYPES[self.inputs["observation"].type]
        feeds = {"observation": numpy.asarray(observation, dtype)[None], **self.state}
        if "mask" in self.inputs:
            mask = info.get("action_mask")
            ones = numpy.ones_like(self.zeros("mask"))
            feeds["mask"] = ones if mask is None else numpy.asarray(mask, ones.dtype).reshape(ones.shape)
        output, *states = self.session.run([self.output, *(f"next_{name}" for name in self.states)], feeds)
        self.state = dict(zip(self.states, states))
        return self.action(output[0])

    def action(self, output):
        match self.space:
            case spaces.Discrete(n=n, start=start) if output.size == n:
                return int(output.argmax() + start)
            case spaces.MultiDiscrete(nvec=nvec) if output.size == nvec.sum():
                parts = numpy.split(output, numpy.cumsum(nvec)[:-1])
                return numpy.array([part.argmax() for part in parts]) + self.space.start
            case spaces.MultiBinary(n=n) if output.size == n:
                return (output > 0).astype(numpy.int8)
            case spaces.Box(low=low, high=high) if output.size == low.size:
                return numpy.clip(output.reshape(low.shape), low, high).astype(self.space.dtype)
        raise ValueError(f"{output.size} numbers are no action of {self.space}")


def play(player, env, seed):
    observation, info = env.reset(seed=seed)
    player.begin()
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(player.act(observation, info))
        total, ended = total + float(reward), terminated or truncated
    return total


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("file", help="an ONNX file")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium's name of an environment")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next one has the next seed")
    args = parser.parse_args()
    if args.episodes < 1:
        parser.error("--episodes must be at least 1")
    try:
        env = gymnasium.make(args.env)
        player = Player(args.file, env)
        returns = [play(player, env, args.seed + i) for i in range(args.episodes)]
    except (ValueError, OSError, gymnasium.error.Error) as error:
        sys.exit(f"error: {error}")
    spread = numpy.std(returns, ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
    print(f"{args.env}: mean return {numpy.mean(returns):.2f} ± {spread:.2f} (standard error) of {len(returns)} episodes")


if __name__ == "__main__":
    main()
