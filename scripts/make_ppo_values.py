"""Records one update of proximal policy optimization, with which the tests of crates/rl compare their own.

    pip install torch safetensors stable-baselines3==2.9.2
    python3 scripts/make_ppo_values.py

Writes crates/rl/tests/data/ppo/CASE.safetensors, all in f64, booleans as u8, discrete actions and indices as i64.
Weights and rollouts are exactly representable in f32, so that a trainer may keep its rollout in f32. T = 16 steps of N
= 4 environments, two minibatches in one epoch. The settings (γ, λ, …) and the kind of policy are JSON under `settings`
in the file's metadata.

Of each policy:

- `weights/NAME`: before the update;
- `rollout/…`: `observations [T, N, 4]`, `actions [T, N, …]`, `masks [T, N, actions]` if there are any, `log_probs`, `values`, `rewards`,
  `terminated`, `truncated`, `final_values` and `starts [T, N]`, `last_values [N]`, `state_0`, … `[1, N, 6]` before the first step of a
  policy with memory: h, and c of an LSTM; of state-dependent exploration `noise [N, features, 2]`, standard normal numbers by which the
  actions were drawn;
- `advantages`, `returns [T, N]`, not normalized;
- `minibatch.K/…` for K = 0 and 1: `indices` (into the T·N rows, t·N + n; or environments, for a policy with memory), `policy_loss`,
  `value_loss`, `entropy`, `approx_kl`, `clip_fraction`, `loss`, `grad_norm` (before clipping), `gradients/NAME` (before clipping), and
  `weights/NAME` after the step.

All is as in CleanRL's ppo.py, ppo_atari_lstm.py and ppo_continuous_action.py, but for truncation, which CleanRL takes for termination. Here the
reward of a row that is truncated and not terminated gets γ times the value of its final observation (`final_values`, which has numbers also
where both are true, and 0 elsewhere) before advantages are estimated; then the episode ends. `starts` is whether an observation is the first of
its episode; the state is zeros there, in the first step too. State-dependent exploration is Stable-Baselines3's own class.

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from torch import nn
from torch.distributions import Categorical, Normal

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data" / "ppo"
STEPS, ENVS, OBSERVATION, HIDDEN, MEMORY = 16, 4, 4, 8, 6
SETTINGS = {
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "clip_value": True,
    "normalize_advantages": "minibatch",
    "value_coefficient": 0.5,
    "entropy_coefficient": 0.01,
    "max_grad_norm": 0.5,
    "learning_rate": 2.5e-4,
    "adam_eps": 1e-5,
}
GENERATOR = torch.Generator()


def randn(*shape, scale=1.0):
    """Random numbers that are exactly representable in f32."""
    return (scale * torch.randn(shape, generator=GENERATOR)).double()


def chance(*shape, p):
    return torch.rand(shape, generator=GENERATOR) < p


class MinGRU(nn.ModuleDict):
    """One layer, from Feng et al., "Were RNNs all we needed?" (2024): h' = (1 − z)·h + z·g(W_h x + b_h)."""

    def __init__(self, inputs, size):
        super().__init__({"0": nn.ModuleDict({name: nn.Linear(inputs, size) for name in ("linear_z", "linear_h")})})

    def forward(self, x, h):
        z, new = self["0"]["linear_z"](x).sigmoid(), self["0"]["linear_h"](x)
        h = (1 - z) * h + z * torch.where(new >= 0, new + 0.5, new.sigmoid())
        return h, h


class Trunk(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(OBSERVATION, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
        if memory:
            self.memory = {"lstm": nn.LSTM, "gru": nn.GRU, "min_gru": MinGRU}[memory](HIDDEN, MEMORY)

    def forward(self, observations, starts, state):
        """Features of rows, or of environments' steps if there is a state."""
        x = self.network(observations)
        if not state:
            return x
        features = []
        for step, start in zip(x, starts):
            state = [part * (1 - start.double()).view(1, -1, 1) for part in state]
            y, state = self.memory(step.unsqueeze(0), tuple(state) if len(state) == 2 else state[0])
            state = state if isinstance(state, tuple) else [state]
            features.append(y)
        return torch.cat(features)


class Policy(nn.Module):
    """ActorCritic of crates/rl, with its parameter names."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        memory = case.get("memory")
        features = MEMORY if memory else HIDDEN
        self.trunk = Trunk(memory)
        if not case["shared"]:
            self.critic_trunk = Trunk(memory)
        outputs = sum(case.get("discrete", [])) or case["continuous"] * {"free": 1, "state": 2, "sde": 1}[case["log_std"]]
        self.actor = nn.Linear(features, outputs)
        self.critic = nn.Linear(features, 1)
        if case.get("log_std") == "free":
            self.log_std = nn.Parameter(torch.zeros(case["continuous"]))
        if case.get("log_std") == "sde":
            self.log_std = nn.Parameter(torch.zeros(features, case["continuous"]))
            self.exploration = StateDependentNoiseDistribution(case["continuous"])
        self.double()
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 30
                parameter.copy_(randn(*parameter.shape, scale=1.3 / fan_in**0.5))

    def forward(self, observations, masks, starts, state):
        """Returns the distributions whose product is the action's distribution, and the values."""
        features = self.trunk(observations, starts, state)
        output = self.actor(features)
        critic_features = features if self.case["shared"] else self.critic_trunk(observations, starts, state)
        values = self.critic(critic_features).squeeze(-1)
        if "discrete" in self.case:
            if masks is not None:
                output = output.masked_fill(~masks, -1e30)
            return [Categorical(logits=part) for part in output.split(self.case["discrete"], -1)], values
        if self.case["log_std"] == "sde":
            flat = self.exploration.proba_distribution(output.flatten(0, -2), self.log_std, features.flatten(0, -2))
            mean, std = flat.distribution.mean.view_as(output), flat.distribution.stddev.view_as(output)
            return [Normal(mean[..., i], std[..., i]) for i in range(self.case["continuous"])], values
        mean, log_std = output.chunk(2, -1) if self.case["log_std"] == "state" else (output, self.log_std)
        return [Normal(mean[..., i], log_std[..., i].exp()) for i in range(self.case["continuous"])], values

    def explore(self, observations, noise):
        """Actions by one matrix for each environment."""
        self.exploration.exploration_matrices = self.log_std.exp() * noise
        actions = []
        for step in observations:
            features = self.trunk(step, None, None)
            actions.append(self.exploration.proba_distribution(self.actor(features), self.log_std, features).sample())
        return [x.float().double() for x in torch.stack(actions).unbind(-1)]

    def log_prob_and_entropy(self, distributions, actions):
        parts = actions.unbind(-1) if len(distributions) > 1 else [actions]
        log_prob = sum(d.log_prob(part) for d, part in zip(distributions, parts, strict=True))
        return log_prob, sum(d.entropy() for d in distributions)


def masks_of(case):
    """Which actions are allowed: random ones for the choices in `masked`, but at least one."""
    if "masked" not in case:
        return None
    parts = []
    for choice, size in enumerate(case["discrete"]):
        allowed = chance(STEPS, ENVS, size, p=0.5 if choice in case["masked"] else 2)
        sure = torch.randint(size, (STEPS, ENVS, 1), generator=GENERATOR)
        parts.append(allowed.scatter(-1, sure, True))
    return torch.cat(parts, -1)


def sample(distribution):
    if isinstance(distribution, Normal):
        # In f32, like the rollout.
        return (distribution.mean + distribution.stddev * randn(*distribution.mean.shape)).float().double()
    flat = distribution.probs.flatten(0, -2)
    return torch.multinomial(flat, 1, generator=GENERATOR).view(distribution.batch_shape)


def episodes():
    """Rewards and flags. One row is both terminated and truncated, the last step ends some episodes, and some begin
    with the first step."""
    terminated, truncated = chance(STEPS, ENVS, p=0.1), chance(STEPS, ENVS, p=0.1)
    terminated[5, 1] = truncated[5, 1] = True
    terminated[-1] = torch.tensor([True, False, False, False])
    truncated[-1] = torch.tensor([False, True, False, False])
    starts = torch.cat([torch.tensor([[True, False, False, True]]), (terminated | truncated)[:-1]])
    return {
        "rewards": (randn(STEPS, ENVS) + 0.5).float().double(),
        "terminated": terminated,
        "truncated": truncated,
        "final_values": randn(STEPS, ENVS) * truncated,
        "starts": starts,
        "last_values": randn(ENVS),
    }


def rollout_of(case, policy):
    """A rollout of a policy close to this one, so that some ratios and values are clipped and others are not."""
    rollout = {"observations": randn(STEPS, ENVS, OBSERVATION), **episodes()}
    masks = masks_of(case)
    if masks is not None:
        rollout["masks"] = masks
    state = [randn(1, ENVS, MEMORY, scale=0.7) for _ in range({"lstm": 2, None: 0}.get(case.get("memory"), 1))]
    rollout.update({f"state_{i}": part for i, part in enumerate(state)})
    with torch.no_grad():
        distributions, values = policy(rollout["observations"], masks, rollout["starts"], state)
        if case.get("log_std") == "sde":
            rollout["noise"] = randn(ENVS, HIDDEN, case["continuous"])
            actions = policy.explore(rollout["observations"], rollout["noise"])
        else:
            actions = [sample(d) for d in distributions]
        rollout["actions"] = torch.stack(actions, -1) if len(actions) > 1 else actions[0]
        log_probs, _ = policy.log_prob_and_entropy(distributions, rollout["actions"])
    rollout["log_probs"] = (log_probs + randn(STEPS, ENVS, scale=0.2)).float().double()
    rollout["values"] = (values + randn(STEPS, ENVS, scale=0.3)).float().double()
    return rollout


def advantages_of(rollout, settings):
    """Schulman et al., "High-dimensional continuous control using generalized advantage estimation" (2016)."""
    gamma, values = settings["gamma"], rollout["values"]
    bootstrapped = rollout["truncated"] & ~rollout["terminated"]
    rewards = rollout["rewards"] + gamma * rollout["final_values"] * bootstrapped
    goes_on = 1 - (rollout["terminated"] | rollout["truncated"]).double()
    advantages, last, after = torch.zeros_like(values), torch.zeros(ENVS).double(), rollout["last_values"]
    for t in reversed(range(STEPS)):
        delta = rewards[t] + gamma * after * goes_on[t] - values[t]
        advantages[t] = last = delta + gamma * settings["gae_lambda"] * goes_on[t] * last
        after = values[t]
    return advantages, advantages + values


def normalized(advantages):
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def losses(policy, batch, settings):
    """CleanRL's losses, of rows [n, …] or of environments' steps [T, n, …]."""
    clip = settings["clip"]
    distributions, values = policy(batch["observations"], batch.get("masks"), batch["starts"], batch["state"])
    log_probs, entropy = policy.log_prob_and_entropy(distributions, batch["actions"])
    log_ratio = log_probs - batch["log_probs"]
    ratio = log_ratio.exp()
    advantages = batch["advantages"]
    if settings["normalize_advantages"] == "minibatch":
        advantages = normalized(advantages)
    policy_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    errors = (values - batch["returns"]) ** 2
    if settings["clip_value"]:
        clipped = batch["values"] + (values - batch["values"]).clamp(-clip, clip)
        errors = torch.max(errors, (clipped - batch["returns"]) ** 2)
    value_loss, entropy = 0.5 * errors.mean(), entropy.mean()
    weighted = settings["value_coefficient"] * value_loss - settings["entropy_coefficient"] * entropy
    return {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": ((ratio - 1) - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip).double().mean(),
        "loss": policy_loss + weighted,
    }


def minibatch(rollout, indices, recurrent):
    """Rows of a rollout, or all steps of some of its environments."""
    state = [rollout[name][:, indices] for name in ("state_0", "state_1") if name in rollout]
    rows = {k: v for k, v in rollout.items() if v.shape[:2] == (STEPS, ENVS)}
    return {k: v[:, indices] if recurrent else v.flatten(0, 1)[indices] for k, v in rows.items()} | {"state": state}


def weights(policy):
    return {f"weights/{name}": parameter for name, parameter in policy.named_parameters()}


def update(case):
    """The tensors of a case."""
    settings, recurrent = SETTINGS | case.get("settings", {}), "memory" in case
    policy = Policy(case)
    rollout = rollout_of(case, policy)
    advantages, returns = advantages_of(rollout, settings)
    kept = weights(policy) | {f"rollout/{k}": v for k, v in rollout.items()} | {"advantages": advantages, "returns": returns}
    kept = {k: v.detach().clone() for k, v in kept.items()}
    if settings["normalize_advantages"] == "batch":
        advantages = normalized(advantages)
    rollout |= {"advantages": advantages, "returns": returns}
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings["learning_rate"], eps=settings["adam_eps"])
    order = torch.randperm(ENVS if recurrent else STEPS * ENVS, generator=GENERATOR)
    for k, indices in enumerate(order.chunk(2)):
        found = losses(policy, minibatch(rollout, indices, recurrent), settings)
        optimizer.zero_grad()
        found["loss"].backward()
        found |= {f"gradients/{name}": parameter.grad.clone() for name, parameter in policy.named_parameters()}
        found["grad_norm"] = nn.utils.clip_grad_norm_(policy.parameters(), settings["max_grad_norm"])
        optimizer.step()
        found |= weights(policy) | {"indices": indices}
        kept |= {f"minibatch.{k}/{name}": x.detach().clone() for name, x in found.items()}
    return kept, settings


CASES = {
    "mlp": {"discrete": [3], "shared": False},
    "lstm": {"discrete": [2], "shared": True, "memory": "lstm"},
    "masked": {"discrete": [4], "shared": False, "masked": [0], "settings": {"clip_value": False}},
    "multi_discrete": {"discrete": [3, 2], "shared": True, "masked": [0]},
    "continuous": {"continuous": 2, "log_std": "free", "shared": False},
    "continuous_state_std": {"continuous": 2, "log_std": "state", "shared": False},
    "gru": {"discrete": [2], "shared": True, "memory": "gru"},
    "min_gru": {"discrete": [2], "shared": True, "memory": "min_gru"},
    "whole_batch": {"discrete": [3], "shared": False, "settings": {"normalize_advantages": "batch"}},
    "sde": {"continuous": 2, "log_std": "sde", "shared": False},
}


def save(name, tensors, settings):
    if stray := {k: v.dtype for k, v in tensors.items() if v.dtype not in (torch.float64, torch.int64, torch.bool)}:
        raise TypeError(f"{name}: {stray}")
    if finer := [k for k, v in tensors.items() if k.startswith(("weights", "rollout")) and (v != v.float()).any()]:
        raise ValueError(f"{name}: f32 has not all numbers of {finer}")
    tensors = {k: (v.byte() if v.dtype == torch.bool else v).detach().contiguous() for k, v in tensors.items()}
    path = OUT / f"{name}.safetensors"
    save_file(tensors, path, metadata={"settings": json.dumps(settings)})
    losses = {k: f"{v.item():.4f}" for k, v in tensors.items() if v.dim() == 0}
    print(f"{name}: {path.stat().st_size} bytes", losses)


def main():
    OUT.mkdir(exist_ok=True)
    for seed, (name, case) in enumerate(CASES.items()):
        GENERATOR.manual_seed(seed)
        torch.manual_seed(seed)
        tensors, settings = update(case)
        policy = {k: v for k, v in case.items() if k != "settings"}
        save(name, tensors, settings | {"policy": policy})


if __name__ == "__main__":
    main()
