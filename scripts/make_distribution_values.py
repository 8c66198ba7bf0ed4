"""Records results of torch.distributions: crates/nn/tests/data/distributions.json.

    pip install torch
    python3 scripts/make_distribution_values.py

For each case in f64: parameters and values; their log_prob, entropy, mode and divergence from a second distribution;
and the gradients of each result's sum, for each parameter in turn.

Made with PyTorch 2.13.0 and Python 3.11, on a CPU.
"""

import json
import pathlib

import torch
from torch import distributions as D

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "nn" / "tests" / "data" / "distributions.json"
GENERATOR = torch.Generator().manual_seed(1)


def randn(*shape, scale=1.0):
    return (scale * torch.randn(shape, generator=GENERATOR, dtype=torch.float64)).requires_grad_()


def listed(x):
    """Nested lists, with infinities as strings, since JSON has no numbers for them."""
    x = x.detach()
    if x.dim() == 0:
        return {float("inf"): "inf", float("-inf"): "-inf"}.get(x.item(), x.item())
    return [listed(part) for part in x]


def case(kind, parameters, others, make, value, **more):
    p, q = make(*parameters), make(*others)
    found = {"log_prob": p.log_prob(value)}
    if "has_no_entropy" not in more:
        found["entropy"] = p.entropy()
    found["kl_divergence"] = D.kl_divergence(p, q)
    sums = [x[torch.isfinite(x)].sum() for x in found.values()]
    gradients = torch.autograd.grad(sum(sums), parameters, allow_unused=True)
    found = {name: listed(x) for name, x in found.items()}
    return {
        "kind": kind,
        "parameters": [listed(x) for x in parameters],
        "others": [listed(x) for x in others],
        "value": listed(value),
        "mode": listed(p.mode) if "mode" not in more else listed(more["mode"]),
        "gradients": [listed(x) for x in gradients],
        **found,
    }



def categorical(logits):
    return D.Categorical(logits=logits)


def bernoulli(logits):
    return D.Bernoulli(logits=logits)


def squashed(loc, scale):
    return D.TransformedDistribution(D.Normal(loc, scale), [D.transforms.TanhTransform()])


@D.kl.register_kl(D.TransformedDistribution, D.TransformedDistribution)
def kl_squashed(p, q):
    """Applying the same invertible transform to both distributions does not change their divergence."""
    return D.kl_divergence(p.base_dist, q.base_dist)


def cases():
    classes = torch.tensor([2, 0, 1])
    yield case("categorical", [randn(3, 4)], [randn(3, 4)], categorical, classes)
    yield case("categorical", [randn(3, 4, scale=200)], [randn(3, 4, scale=200)], categorical, classes)
    bits = torch.tensor([[0.0, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)
    logits = randn(2, 4)
    yield case("bernoulli", [logits], [randn(2, 4)], bernoulli, bits, mode=(logits > 0).double())
    logits = randn(2, 4, scale=60)
    yield case("bernoulli", [logits], [randn(2, 4, scale=60)], bernoulli, bits, mode=(logits > 0).double())
    scale = lambda: randn(3, 2).detach().exp().requires_grad_()
    value = randn(3, 2, scale=3).detach()
    yield case("normal", [randn(3, 2), scale()], [randn(3, 2), scale()], D.Normal, value)
    yield case("normal", [randn(3, 2), scale()[:1].detach().requires_grad_()], [randn(3, 2), scale()], D.Normal, value)
    loc = randn(3, 2)
    value = torch.tensor([[0.5, -0.99], [0.999999, 0.0], [-0.25, 1e-12]], dtype=torch.float64)
    more = {"has_no_entropy": True, "mode": loc.tanh()}
    yield case("tanh_normal", [loc, scale()], [randn(3, 2), scale()], squashed, value, **more)


def masked_cases():
    """With a mask, as logits far below all others; their divergence in PyTorch is NaN."""
    logits, classes = randn(3, 4), torch.tensor([2, 0, 1])
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0], [0, 1, 0, 0]]).bool()
    p = D.Categorical(logits=logits.masked_fill(~mask, -1e30))
    allowed = torch.tensor([2, 1, 1])
    log_prob, entropy = p.log_prob(allowed), p.entropy()
    (gradient,) = torch.autograd.grad(log_prob.sum() + entropy.sum(), logits)
    yield {
        "kind": "categorical",
        "parameters": [listed(logits)],
        "mask": mask.tolist(),
        "value": allowed.tolist(),
        "log_prob": listed(log_prob),
        "entropy": listed(entropy),
        "mode": listed(p.probs.argmax(-1)),
        "gradients": [listed(gradient)],
    }


OUT.write_text(json.dumps([*cases(), *masked_cases()], indent=1) + "\n")
