"""Records updates of deep Q-learning, with which the tests of crates/rl compare their own.

    pip install torch safetensors
    python3 scripts/make_dqn_values.py

Writes crates/rl/tests/data/dqn/CASE.safetensors, all in f64, actions as i64. Weights and transitions are exactly
representable in f32, since a replay buffer stores f32. The settings are JSON under `settings` in the file's metadata.

- `online/NAME`, `target/NAME`: both networks before the updates, under crates/rl's parameter names;
- `update.K/…` for K = 0, 1 and 2: the transitions `observations [N, 4]`, `actions`, `rewards`, `discounts` (0 at the
  end of an episode), `weights [N]` and `next_observations [N, 4]`; the results: `errors [N]`, `value`, `loss`,
  `grad_norm` (before clipping), `gradients/NAME`, and `online/NAME` after the step of Adam. Before the last update the
  target network is set to the online network.

The loss is that of CleanRL's dqn.py, in its variants: `double` by van Hasselt et al. (2016), `dueling` by Wang et al. (2016), `huber` by
PyTorch's smooth_l1_loss, weights of transitions by Schaul et al. (2016).

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data" / "dqn"
COUNT, OBSERVATION, HIDDEN, ACTIONS = 12, 4, 8, 3
CASES = {
    "plain": {"double": False, "dueling": False, "huber": False, "max_grad_norm": None},
    "double": {"double": True, "dueling": False, "huber": True, "max_grad_norm": 10.0},
    "all": {"double": True, "dueling": True, "huber": True, "max_grad_norm": 0.5},
}
LEARNING_RATE = 2.5e-4
GENERATOR = torch.Generator()


def randn(*shape, scale=1.0):
    """Random numbers that are exactly representable in f32."""
    return (scale * torch.randn(shape, generator=GENERATOR)).double()


class Network(nn.Module):
    """QNetwork of crates/rl, with its parameter names."""

    def __init__(self, dueling):
        super().__init__()
        layers = nn.Sequential(nn.Linear(OBSERVATION, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.trunk = nn.ModuleDict({"network": layers})
        self.advantage = nn.Linear(HIDDEN, ACTIONS)
        if dueling:
            self.value = nn.Linear(HIDDEN, 1)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 30
                parameter.copy_(randn(*parameter.shape, scale=1.3 / fan_in**0.5))

    def forward(self, observations):
        features = self.trunk["network"](observations)
        advantage = self.advantage(features)
        if not hasattr(self, "value"):
            return advantage
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def transitions(k):
    """Transitions over one and over three steps, some at the end of an episode."""
    ended = torch.rand(COUNT, generator=GENERATOR) < 0.25
    steps = 1 + 2 * (torch.rand(COUNT, generator=GENERATOR) < 0.5)
    weights = torch.rand(COUNT, generator=GENERATOR) * 0.9 + 0.1 if k else torch.ones(COUNT)
    return {
        "observations": randn(COUNT, OBSERVATION),
        "actions": torch.randint(ACTIONS, (COUNT,), generator=GENERATOR),
        "rewards": randn(COUNT, scale=1.5),
        "discounts": (0.99**steps * ~ended).float().double(),
        "next_observations": randn(COUNT, OBSERVATION),
        "weights": weights.float().double(),
    }


def losses(online, target, batch, settings):
    with torch.no_grad():
        next_values = target(batch["next_observations"])
        judge = online(batch["next_observations"]) if settings["double"] else next_values
        chosen = next_values.gather(1, judge.argmax(1, keepdim=True)).squeeze(1)
        wanted = batch["rewards"] + batch["discounts"] * chosen
    values = online(batch["observations"]).gather(1, batch["actions"].unsqueeze(1)).squeeze(1)
    kind = functional.smooth_l1_loss if settings["huber"] else functional.mse_loss
    loss = (batch["weights"] * kind(values, wanted, reduction="none")).mean()
    return {"loss": loss, "errors": values - wanted, "value": values.mean()}


def updates(settings):
    """The tensors of a case."""
    online, target = Network(settings["dueling"]), Network(settings["dueling"])
    networks = {"online": online, "target": target}
    kept = {f"{which}/{name}": p.clone() for which, network in networks.items() for name, p in network.named_parameters()}
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE)
    for k in range(3):
        if k == 2:
            target.load_state_dict(online.state_dict())
        batch = transitions(k)
        found = losses(online, target, batch, settings)
        optimizer.zero_grad()
        found["loss"].backward()
        found |= {f"gradients/{name}": p.grad.clone() for name, p in online.named_parameters()}
        norm = settings["max_grad_norm"] or float("inf")
        found["grad_norm"] = nn.utils.clip_grad_norm_(online.parameters(), norm)
        optimizer.step()
        found |= batch | {f"online/{name}": p.clone() for name, p in online.named_parameters()}
        kept |= {f"update.{k}/{name}": x.detach().clone() for name, x in found.items()}
    return kept


def main():
    OUT.mkdir(exist_ok=True)
    for seed, (name, settings) in enumerate(CASES.items()):
        GENERATOR.manual_seed(seed)
        tensors = {k: v.detach().contiguous() for k, v in updates(settings).items()}
        if stray := {k: v.dtype for k, v in tensors.items() if v.dtype not in (torch.float64, torch.int64)}:
            raise TypeError(f"{name}: {stray}")
        path = OUT / f"{name}.safetensors"
        save_file(tensors, path, metadata={"settings": json.dumps(settings | {"learning_rate": LEARNING_RATE})})
        print(f"{name}: {path.stat().st_size} bytes, losses", [f"{tensors[f'update.{k}/loss'].item():.4f}" for k in range(3)])


if __name__ == "__main__":
    main()
