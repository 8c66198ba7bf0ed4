"""Records updates of PQN, with which the tests of crates/rl compare their own.

    pip install torch safetensors
    python3 scripts/make_pqn_values.py

Writes crates/rl/tests/data/pqn/update.safetensors, all in f64, actions as i64. Weights and steps are exactly
representable in f32. The settings are JSON under `settings` in the file's metadata.

- `network/NAME`: the network before the updates, under crates/rl's parameter names, with normalized layers;
- `rollout/…`: `observations [T, N, 4]`, `actions`, `rewards`, `ended` and `terminated [T, N]`, `next_observations [T,
  N, 4]`, which at the end of an episode has its last observation; the results: `values [T, N]` (of the next step's best
  actions) and `targets [T, N]`;
- `update.K/…` for K = 0, 1, … 6: `places [M]` in the rollout, step by step; `loss`, `value`, `grad_norm` (before
  clipping), `gradients/NAME`, and `network/NAME` after the step of RAdam, which does not use the second moment in its
  first five steps.

Targets are the Q(λ) targets of Gallici et al. (2025). The rest follows CleanRL's pqn.py, whose own targets continue
beyond the end of an episode.

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data" / "pqn"
STEPS, ROWS, OBSERVATION, HIDDEN, ACTIONS = 6, 4, 4, 8, 3
SETTINGS = {"gamma": 0.99, "q_lambda": 0.65, "learning_rate": 2.5e-4, "max_grad_norm": 0.5, "minibatches": 2}
GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape, scale=1.0):
    """Random numbers that are exactly representable in f32."""
    return (scale * torch.randn(shape, generator=GENERATOR)).double()


class Network(nn.Module):
    """QNetwork of crates/rl, with its parameter names."""

    def __init__(self):
        super().__init__()
        layers = []
        for size in (OBSERVATION, HIDDEN):
            layers += [nn.Linear(size, HIDDEN), nn.LayerNorm(HIDDEN), nn.ReLU()]
        self.trunk = nn.ModuleDict({"network": nn.Sequential(*layers)})
        self.advantage = nn.Linear(HIDDEN, ACTIONS)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 30
                parameter.copy_(randn(*parameter.shape, scale=1.3 / fan_in**0.5))

    def forward(self, observations):
        return self.advantage(self.trunk["network"](observations))


def steps():
    ended = torch.rand(STEPS, ROWS, generator=GENERATOR) < 0.3
    return {
        "observations": randn(STEPS, ROWS, OBSERVATION),
        "actions": torch.randint(ACTIONS, (STEPS, ROWS), generator=GENERATOR),
        "rewards": randn(STEPS, ROWS, scale=1.5),
        "ended": ended,
        "terminated": ended & (torch.rand(STEPS, ROWS, generator=GENERATOR) < 0.5),
        "next_observations": randn(STEPS, ROWS, OBSERVATION),
    }


def targets(network, rollout):
    """Computes the targets row by row, from the definition."""
    with torch.no_grad():
        values = network(rollout["next_observations"]).max(-1).values
    found = torch.zeros(STEPS, ROWS, dtype=torch.float64)
    for row in range(ROWS):
        for step in reversed(range(STEPS)):
            behind = values[step, row]
            if rollout["terminated"][step, row]:
                behind = torch.tensor(0.0)
            elif not rollout["ended"][step, row] and step + 1 < STEPS:
                behind = SETTINGS["q_lambda"] * found[step + 1, row] + (1 - SETTINGS["q_lambda"]) * behind
            found[step, row] = rollout["rewards"][step, row] + SETTINGS["gamma"] * behind
    return {"values": values, "targets": found}


def main():
    network, rollout = Network(), steps()
    kept = {f"network/{name}": p.detach().clone() for name, p in network.named_parameters()}
    rollout |= targets(network, rollout)
    kept |= {f"rollout/{name}": x for name, x in rollout.items()}
    flat = {name: x.reshape(STEPS * ROWS, *x.shape[2:]) for name, x in rollout.items()}
    optimizer = torch.optim.RAdam(network.parameters(), lr=SETTINGS["learning_rate"])
    for k in range(7):
        size = STEPS * ROWS // SETTINGS["minibatches"]
        places = torch.randperm(STEPS * ROWS, generator=GENERATOR)[:size]
        value = network(flat["observations"][places]).gather(1, flat["actions"][places].unsqueeze(1)).squeeze(1)
        # In f32, as the rollout's targets are stored.
        loss = functional.mse_loss(value, flat["targets"][places].float().double())
        optimizer.zero_grad()
        loss.backward()
        found = {"places": places, "loss": loss, "value": value.mean()}
        found |= {f"gradients/{name}": p.grad.clone() for name, p in network.named_parameters()}
        found["grad_norm"] = nn.utils.clip_grad_norm_(network.parameters(), SETTINGS["max_grad_norm"])
        optimizer.step()
        found |= {f"network/{name}": p for name, p in network.named_parameters()}
        kept |= {f"update.{k}/{name}": x.detach().clone() for name, x in found.items()}
    OUT.mkdir(exist_ok=True)
    kept = {name: (x.long() if x.dtype == torch.bool else x).contiguous() for name, x in kept.items()}
    path = OUT / "update.safetensors"
    save_file(kept, path, metadata={"settings": json.dumps(SETTINGS)})
    print(f"{path.stat().st_size} bytes, losses", [f"{kept[f'update.{k}/loss'].item():.4f}" for k in range(7)])


if __name__ == "__main__":
    main()
