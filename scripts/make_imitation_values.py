"""Records updates of behaviour cloning and distillation, with which the tests of crates/rl compare their own.

    pip install torch safetensors
    python3 scripts/make_imitation_values.py

Writes crates/rl/tests/data/imitation/updates.safetensors, all in f64. For KEY `discrete` and `continuous`:

- `KEY/policy/NAME`: the policy before the updates, under crates/rl's parameter names;
- `KEY/observations [7, 4]`, `KEY/actions [7, len]`, `KEY/teacher/output` and, for continuous actions,
  `KEY/teacher/log_std`;
- `KEY/bc/…`: `loss`, `entropy` and `prob_true_act` as the package imitation computes them (BehaviorCloningLossCalculator of imitation 1.0,
  with ent_weight 1e-2 and l2_weight 1e-3), and the parameters after a step of Adam with a rate of 1e-2;
- `KEY/distill/…`: `loss`, the mean KL divergence of the policy from its teacher, and the parameters after such a step.

Made with PyTorch 2.13.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import copy
import pathlib

import torch
from safetensors.torch import save_file
from torch import distributions, nn

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "rl" / "tests" / "data" / "imitation"
ROWS, OBSERVATION, HIDDEN = 7, 4, 5
GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape, scale=1.0):
    """Random numbers that are exactly representable in f32."""
    return (scale * torch.randn(shape, generator=GENERATOR)).double()


class Policy(nn.Module):
    """ActorCritic of crates/rl without its critic, with its parameter names."""

    def __init__(self, outputs, is_continuous):
        super().__init__()
        self.trunk = nn.ModuleDict({"network": nn.Sequential(nn.Linear(OBSERVATION, HIDDEN), nn.Tanh())})
        self.actor = nn.Linear(HIDDEN, outputs)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if is_continuous else None
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(randn(*parameter.shape, scale=0.6))

    def forward(self, observations):
        output = self.actor(self.trunk["network"](observations))
        return distribution(output, self.log_std)


def distribution(output, log_std):
    if log_std is None:
        return distributions.Categorical(logits=output)
    return distributions.Independent(distributions.Normal(output, log_std.exp().expand_as(output)), 1)


def bc(policy, observations, actions):
    own = policy(observations)
    log_prob = own.log_prob(actions if policy.log_std is not None else actions.squeeze(1))
    entropy = own.entropy().mean()
    l2_norm = sum(torch.sum(torch.square(w)) for w in policy.parameters()) / 2
    loss = -log_prob.mean() - 1e-2 * entropy + 1e-3 * l2_norm
    return {"loss": loss, "entropy": entropy, "prob_true_act": torch.exp(log_prob).mean()}


def distill(policy, observations, teacher):
    return {"loss": distributions.kl_divergence(teacher, policy(observations)).mean()}


def main():
    kept = {}
    for key, outputs in [("discrete", 3), ("continuous", 2)]:
        is_continuous = key == "continuous"
        policy, observations = Policy(outputs, is_continuous), randn(ROWS, OBSERVATION)
        actions = randn(ROWS, 2) if is_continuous else torch.randint(3, (ROWS, 1), generator=GENERATOR).double()
        output, log_std = randn(ROWS, outputs), randn(ROWS, outputs, scale=0.3) if is_continuous else None
        kept |= {f"{key}/policy/{name}": p.detach().clone() for name, p in policy.named_parameters()}
        kept |= {f"{key}/observations": observations, f"{key}/actions": actions, f"{key}/teacher/output": output}
        if is_continuous:
            kept[f"{key}/teacher/log_std"] = log_std
        for what, found in [
            ("bc", lambda own: bc(own, observations, actions)),
            ("distill", lambda own: distill(own, observations, distribution(output, log_std))),
        ]:
            own = copy.deepcopy(policy)
            numbers = found(own)
            optimizer = torch.optim.Adam(own.parameters(), lr=1e-2)
            numbers["loss"].backward()
            optimizer.step()
            kept |= {f"{key}/{what}/{name}": x.detach().clone() for name, x in numbers.items()}
            kept |= {f"{key}/{what}/{name}": p.detach().clone() for name, p in own.named_parameters()}
            print(key, what, f"{numbers['loss'].item():.4f}")
    OUT.mkdir(exist_ok=True)
    save_file(kept, OUT / "updates.safetensors")


if __name__ == "__main__":
    main()
