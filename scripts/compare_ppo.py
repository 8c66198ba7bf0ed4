r"""Measures the time and returns of proximal policy optimization as in CleanRL's ppo.py, with PyTorch and Gymnasium.

    pip install torch gymnasium
    python3 scripts/compare_ppo.py
    python3 scripts/compare_ppo.py --total 22528 --envs 8 --steps 256 --minibatches 32 --epochs 10 --learning-rate 3e-4 --fixed-rate \
        --entropy 0 --value 1 --no-value-clip

The defaults are CleanRL's, except the total number of steps. The second command trains what benches/peers/modurl
trains, for as many steps. As in CleanRL a truncated episode counts as terminated, environments use Gymnasium's wrappers
and are stepped one after another, and actor and critic are two networks of 64 and 64 features. Nothing is logged. It
uses one thread, and runs one iteration before the clock starts.
"""

import argparse
import time

import gymnasium
import numpy
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Categorical


def arguments(given=None):
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="of discrete actions")
    parser.add_argument("--total", type=int, default=50_000, help="steps of environments in all")
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=128, help="of each environment in a rollout")
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--fixed-rate", action="store_true", help="the learning rate does not go down to 0")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--no-value-clip", action="store_true")
    parser.add_argument("--entropy", type=float, default=0.01, help="its coefficient")
    parser.add_argument("--value", type=float, default=0.5, help="the coefficient of the value loss")
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(given)


def network(inputs, outputs, gain):
    layers = []
    for before, after, scale in ((inputs, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)):
        linear = nn.Linear(before, after)
        nn.init.orthogonal_(linear.weight, scale)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Agent(nn.Module):
    def __init__(self, env):
        super().__init__()
        inputs = int(numpy.prod(env.single_observation_space.shape))
        self.critic = network(inputs, 1, 1.0)
        self.actor = network(inputs, int(env.single_action_space.n), 0.01)

    def forward(self, observations, actions=None):
        distribution = Categorical(logits=self.actor(observations))
        actions = distribution.sample() if actions is None else actions
        return actions, distribution.log_prob(actions), distribution.entropy(), self.critic(observations).squeeze(-1)


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.set_num_threads(args.threads)
        torch.manual_seed(args.seed)
        numpy.random.seed(args.seed)
        make = lambda: RecordEpisodeStatistics(gymnasium.make(args.env))
        self.env = SyncVectorEnv([make] * args.envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.agent = Agent(self.env)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=args.learning_rate, eps=1e-5)
        observation, _ = self.env.reset(seed=args.seed)
        self.observation, self.done = torch.as_tensor(observation), torch.zeros(args.envs)
        self.returns = []

    def rollout(self):
        args = self.args
        shape = (args.steps, args.envs)
        kept = {name: torch.zeros(shape) for name in ("log_probs", "rewards", "dones", "values")}
        kept["observations"] = torch.zeros(shape + self.env.single_observation_space.shape)
        kept["actions"] = torch.zeros(shape, dtype=torch.int64)
        for t in range(args.steps):
            kept["observations"][t], kept["dones"][t] = self.observation, self.done
            with torch.no_grad():
                kept["actions"][t], kept["log_probs"][t], _, kept["values"][t] = self.agent(self.observation)
            observation, reward, terminated, truncated, info = self.env.step(kept["actions"][t].numpy())
            kept["rewards"][t] = torch.as_tensor(reward)
            self.observation, self.done = torch.as_tensor(observation), torch.as_tensor(terminated | truncated).float()
            if "final_info" in info:
                episode = info["final_info"]["episode"]
                self.returns += episode["r"][info["final_info"]["_episode"]].tolist()
        return kept

    def advantages(self, kept):
        args = self.args
        with torch.no_grad():
            after = self.agent.critic(self.observation).squeeze(-1)
        done, last = self.done, torch.zeros(args.envs)
        advantages = torch.zeros_like(kept["rewards"])
        for t in reversed(range(args.steps)):
            delta = kept["rewards"][t] + args.gamma * after * (1 - done) - kept["values"][t]
            advantages[t] = last = delta + args.gamma * args.gae_lambda * (1 - done) * last
            done, after = kept["dones"][t], kept["values"][t]
        return advantages

    def loss(self, rows):
        args = self.args
        _, log_probs, entropy, values = self.agent(rows["observations"], rows["actions"])
        log_ratio = log_probs - rows["log_probs"]
        ratio = log_ratio.exp()
        with torch.no_grad():
            # CleanRL computes these statistics too, so their time counts.
            ((ratio - 1) - log_ratio).mean(), ((ratio - 1).abs() > args.clip).float().mean().item()
        advantages = rows["advantages"]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy = torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - args.clip, 1 + args.clip)).mean()
        errors = (values - rows["returns"]) ** 2
        if not args.no_value_clip:
            clipped = rows["values"] + torch.clamp(values - rows["values"], -args.clip, args.clip)
            errors = torch.max(errors, (clipped - rows["returns"]) ** 2)
        return policy - args.entropy * entropy.mean() + args.value * 0.5 * errors.mean()

    def update(self, kept):
        args = self.args
        size = args.steps * args.envs
        rows = {name: x.flatten(0, 1) for name, x in kept.items()}
        order = numpy.arange(size)
        for _ in range(args.epochs):
            numpy.random.shuffle(order)
            for indices in numpy.split(order, args.minibatches):
                loss = self.loss({name: x[indices] for name, x in rows.items()})
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), args.max_grad_norm)
                self.optimizer.step()

    def iteration(self, done, total):
        if not self.args.fixed_rate:
            self.optimizer.param_groups[0]["lr"] = self.args.learning_rate * (1 - done / total)
        kept = self.rollout()
        kept["advantages"] = self.advantages(kept)
        kept["returns"] = kept["advantages"] + kept["values"]
        self.update(kept)


def main():
    args = arguments()
    trainer = Trainer(args)
    batch = args.envs * args.steps
    iterations = args.total // batch
    trainer.iteration(0, iterations)
    start = time.perf_counter()
    for i in range(1, iterations):
        trainer.iteration(i, iterations)
    seconds = time.perf_counter() - start
    steps = (iterations - 1) * batch
    last = trainer.returns[-100:]
    print(f"{args.env}: {steps} steps in {seconds:.2f} s, {steps / seconds:.0f} steps/s")
    print(f"{len(trainer.returns)} episodes, mean return of the last {len(last)}: {numpy.mean(last):.1f}")


if __name__ == "__main__":
    main()
