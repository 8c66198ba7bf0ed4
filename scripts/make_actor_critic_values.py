"""Records updates of SAC and TD3, with which the tests of crates/rl compare their own.

    pip install torch safetensors stable-baselines3==2.9.2
    python3 scripts/make_actor_critic_values.py

Writes crates/rl/tests/data/sac/CASE.safetensors and td3/CASE.safetensors, all in f64. Weights, transitions and noise
are exactly representable in f32. The settings are JSON under `settings` in the file's metadata.

- `before/NAME`: the networks before the updates, under crates/rl's names of parameters, and the bounds of actions, `actor.scale` and
  `actor.middle`;
- `update.K/…` for K = 0 to 3: the transitions `observations [N, 3]`, `actions [N, 2]`, `rewards`, `discounts [N]` (0 at the end of an
  episode) and `next_observations [N, 3]`; `noise.J [N, 2]`, numbers of the standard normal distribution in the order of their use,
  in the case `sde` `[8, 2]`, by which one matrix is drawn for all rows; what came
  of them: `critics`, `value`, and where they are computed `entropy`, `actor` and `temperature`, the last ones; and `after/NAME`.

The updates are those of CleanRL's sac_continuous_action.py and td3_continuous_action.py. In the case `sde` actions and their probabilities are
those of Stable-Baselines3's own class for state-dependent exploration, in the units of the environment.

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import copy
import json
import pathlib

import torch
from safetensors.torch import save_file
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from torch import nn
from torch.distributions import Normal
from torch.nn import functional

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data"
COUNT, OBSERVATION, HIDDEN, UPDATES = 12, 3, 8, 4
LOW, HIGH = torch.tensor([-2.0, -1.0]).double(), torch.tensor([2.0, 4.0]).double()
ACTIONS = len(LOW)
RATES = {"learning_rate": 3e-4, "critic_learning_rate": 1e-3, "tau": 0.05}
CASES = {
    "sac": {
        "learnt": RATES | {"policy_frequency": 2, "temperature": None, "target_entropy": None},
        "fixed": RATES | {"policy_frequency": 1, "temperature": 0.25, "target_entropy": None},
        "sde": RATES | {"policy_frequency": 2, "temperature": None, "target_entropy": None, "use_sde": True},
    },
    "td3": {
        "default": {"learning_rate": 3e-4, "tau": 0.05, "policy_frequency": 2, "policy_noise": 0.2, "noise_clip": 0.5},
        "clipped": {"learning_rate": 3e-4, "tau": 0.05, "policy_frequency": 1, "policy_noise": 1.5, "noise_clip": 0.8},
    },
}
GENERATOR = torch.Generator()


def randn(*shape, scale=1.0):
    """Random numbers that are exactly representable in f32."""
    return (scale * torch.randn(shape, generator=GENERATOR)).double()


def layers(inputs):
    network = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    return nn.ModuleDict({"network": network})


class Policy(nn.Module):
    """BoundedPolicy of crates/rl, with its parameter names."""

    def __init__(self, draws):
        super().__init__()
        self.trunk = layers(OBSERVATION)
        self.mean = nn.Linear(HIDDEN, ACTIONS)
        if draws:
            self.log_std = nn.Linear(HIDDEN, ACTIONS)
        self.register_buffer("scale", (HIGH - LOW) / 2)
        self.register_buffer("middle", (HIGH + LOW) / 2)

    def action(self, observations):
        return torch.tanh(self.mean(self.trunk["network"](observations))) * self.scale + self.middle

    def draw(self, observations, noise):
        x = self.trunk["network"](observations)
        mean, log_std = self.mean(x), torch.tanh(self.log_std(x))
        std = (-5 + 0.5 * (2 + 5) * (log_std + 1)).exp()
        drawn = mean + std * noise
        y = torch.tanh(drawn)
        log_prob = Normal(mean, std).log_prob(drawn) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        return y * self.scale + self.middle, log_prob.sum(1)


class StateDependentPolicy(Policy):
    """The same with state-dependent exploration, as Stable-Baselines3's SAC has it."""

    def __init__(self):
        super().__init__(False)
        self.sde_log_std = nn.Parameter(torch.zeros(HIDDEN, ACTIONS))
        self.exploration = StateDependentNoiseDistribution(ACTIONS, squash_output=True, learn_features=True)

    def before(self, observations):
        features = self.trunk["network"](observations)
        return nn.functional.hardtanh(self.mean(features), -2.0, 2.0), features

    def action(self, observations):
        return torch.tanh(self.before(observations)[0]) * self.scale + self.middle

    def draw(self, observations, noise):
        mean, features = self.before(observations)
        self.exploration.exploration_mat = self.sde_log_std.exp() * noise
        self.exploration.exploration_matrices = self.exploration.exploration_mat.unsqueeze(0)
        y, log_prob = self.exploration.log_prob_from_params(mean, self.sde_log_std, features)
        return y * self.scale + self.middle, log_prob - self.scale.log().sum()


class Critic(nn.Module):
    """ActionValue of crates/rl."""

    def __init__(self):
        super().__init__()
        self.trunk = layers(OBSERVATION + ACTIONS)
        self.value = nn.Linear(HIDDEN, 1)

    def forward(self, observations, actions):
        return self.value(self.trunk["network"](torch.cat([observations, actions], 1))).squeeze(1)


class Networks(nn.Module):
    """ActorCritics of crates/rl."""

    def __init__(self, draws):
        super().__init__()
        self.actor = StateDependentPolicy() if draws == "sde" else Policy(draws)
        self.critics = nn.ModuleList([Critic(), Critic()])
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 30
                parameter.copy_(randn(*parameter.shape, scale=1.3 / fan_in**0.5))
            if draws == "sde":
                # Their class takes atanh of tanh, which loses digits of numbers that are far from 0.
                self.actor.sde_log_std.copy_((self.actor.sde_log_std - 2.0).float())
        if not draws:
            self.target_actor = copy.deepcopy(self.actor)
        self.target_critics = copy.deepcopy(self.critics)

    def follow(self, tau):
        pairs = list(zip(self.target_critics.parameters(), self.critics.parameters(), strict=True))
        if hasattr(self, "target_actor"):
            pairs += zip(self.target_actor.parameters(), self.actor.parameters(), strict=True)
        with torch.no_grad():
            for target, parameter in pairs:
                target.copy_(tau * parameter + (1 - tau) * target)


def least(critics, observations, actions):
    a, b = (critic(observations, actions) for critic in critics)
    return torch.min(a, b)


def transitions():
    ended = torch.rand(COUNT, generator=GENERATOR) < 0.25
    shares = torch.rand(COUNT, ACTIONS, generator=GENERATOR)
    return {
        "observations": randn(COUNT, OBSERVATION),
        "actions": (LOW.float() + shares * (HIGH - LOW).float()).double(),
        "rewards": randn(COUNT, scale=1.5),
        "discounts": (0.99 * ~ended).float().double(),
        "next_observations": randn(COUNT, OBSERVATION),
    }


def descend(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Recorder:
    """Records the inputs and results of each update."""

    def __init__(self):
        self.kept, self.rows = {}, COUNT

    def begin(self, k):
        self.prefix, self.noises = f"update.{k}/", 0

    def keep(self, **found):
        self.kept |= {self.prefix + name: x for name, x in found.items()}

    def noise(self):
        noise = randn(self.rows, ACTIONS)
        self.keep(**{f"noise.{self.noises}": noise})
        self.noises += 1
        return noise


def critic_step(networks, optimizer, batch, wanted, record):
    values = [critic(batch["observations"], batch["actions"]) for critic in networks.critics]
    loss = descend(optimizer, sum(functional.mse_loss(own, wanted) for own in values))
    record.keep(critics=loss, value=values[0].mean())


def sac_updates(networks, settings, record):
    learnt = settings["temperature"] is None
    start = torch.zeros(1) if learnt else torch.tensor([settings["temperature"]]).log()
    networks.log_temperature = nn.Parameter(start.float().double(), requires_grad=learnt)
    record.kept |= {f"before/{name}": x.clone() for name, x in networks.state_dict().items()}
    actor, log_temperature = networks.actor, networks.log_temperature
    critics = torch.optim.Adam(networks.critics.parameters(), lr=settings["critic_learning_rate"])
    actors = torch.optim.Adam(actor.parameters(), lr=settings["learning_rate"])
    temperatures = torch.optim.Adam([log_temperature], lr=settings["critic_learning_rate"])
    for k in range(UPDATES):
        record.begin(k)
        batch = transitions()
        record.keep(**batch)
        with torch.no_grad():
            actions, log_prob = actor.draw(batch["next_observations"], record.noise())
            next_values = least(networks.target_critics, batch["next_observations"], actions)
            wanted = batch["rewards"] + batch["discounts"] * (next_values - log_temperature.exp() * log_prob)
        record.keep(entropy=-log_prob.mean())
        critic_step(networks, critics, batch, wanted, record)
        if k % settings["policy_frequency"] == 0:
            for _ in range(settings["policy_frequency"]):
                actions, log_prob = actor.draw(batch["observations"], record.noise())
                values = least(networks.critics, batch["observations"], actions)
                loss = (log_temperature.exp().detach() * log_prob - values).mean()
                record.keep(actor=descend(actors, loss))
                if learnt:
                    with torch.no_grad():
                        _, log_prob = actor.draw(batch["observations"], record.noise())
                    loss = (-log_temperature.exp() * (log_prob - ACTIONS)).mean()
                    record.keep(temperature=descend(temperatures, loss))
        networks.follow(settings["tau"])
        record.keep(**{f"after/{name}": x.clone() for name, x in networks.state_dict().items()})


def td3_updates(networks, settings, record):
    record.kept |= {f"before/{name}": x.clone() for name, x in networks.state_dict().items()}
    actor, target = networks.actor, networks.target_actor
    critics = torch.optim.Adam(networks.critics.parameters(), lr=settings["learning_rate"])
    actors = torch.optim.Adam(actor.parameters(), lr=settings["learning_rate"])
    for k in range(UPDATES):
        record.begin(k)
        batch = transitions()
        record.keep(**batch)
        with torch.no_grad():
            most = settings["noise_clip"]
            noise = (record.noise() * settings["policy_noise"]).clamp(-most, most) * target.scale
            actions = (target.action(batch["next_observations"]) + noise).clamp(LOW, HIGH)
            next_values = least(networks.target_critics, batch["next_observations"], actions)
            wanted = batch["rewards"] + batch["discounts"] * next_values
        critic_step(networks, critics, batch, wanted, record)
        if k % settings["policy_frequency"] == 0:
            loss = -networks.critics[0](batch["observations"], actor.action(batch["observations"])).mean()
            record.keep(actor=descend(actors, loss))
            networks.follow(settings["tau"])
        record.keep(**{f"after/{name}": x.clone() for name, x in networks.state_dict().items()})


ALGORITHMS = {"sac": (sac_updates, True), "td3": (td3_updates, False)}


def main():
    for algorithm, cases in CASES.items():
        (OUT / algorithm).mkdir(exist_ok=True)
        for seed, (name, settings) in enumerate(cases.items()):
            GENERATOR.manual_seed(seed)
            updates, draws = ALGORITHMS[algorithm]
            record = Recorder()
            if settings.get("use_sde"):
                record.rows, draws = HIDDEN, "sde"
            updates(Networks(draws), settings, record)
            tensors = {k: v.detach().clone() for k, v in record.kept.items()}
            if stray := {k: v.dtype for k, v in tensors.items() if v.dtype != torch.float64}:
                raise TypeError(f"{name}: {stray}")
            path = OUT / algorithm / f"{name}.safetensors"
            save_file(tensors, path, metadata={"settings": json.dumps(settings)})
            losses = [f"{tensors[f'update.{k}/critics']:.4f}" for k in range(UPDATES)]
            print(f"{algorithm} {name}: {path.stat().st_size} bytes, losses", losses)


if __name__ == "__main__":
    main()
