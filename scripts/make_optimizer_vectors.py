"""Record what PyTorch's optimizers and learning rate schedules do: the vectors that Polygrad's are held to.

    python3 scripts/make_optimizer_vectors.py

Writes conformance/data/optimizers, in f64, in the format of scripts/vector_set.py: `op` is the class, "optim.SGD", `a` the list of
parameters before the first step, and `kw` the keyword arguments and "grads": the parameters' gradients of each step. The outputs are the
parameters after the first step, then those after the second, and so on.

Writes crates/nn/tests/data/schedules.json as well, a list of
    {"k": name, "scheduler": class in torch.optim.lr_scheduler, "init": {…}, "base_lr": lr, "lr": [30 numbers]}
where lr[e] is the rate in epoch e, with one `step` of the schedule after each epoch. A SequentialLR's
`init` holds {"schedulers": [{"scheduler", "init"}, …], "milestones": […]}.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import json
import pathlib

import torch

from vector_set import VectorSet

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = [(3, 2), (4,)]
STEPS, EPOCHS = 5, 30
LIMIT = 1_000_000

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-4}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.0}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-4}),
    ("RMSprop", {"lr": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.01, "centered": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
]

WARMUP = {"scheduler": "LinearLR", "init": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 5}}
SCHEDULES = [
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("StepLR", {"step_size": 7}),
    ("StepLR", {"step_size": 10, "gamma": 0.5}),
    ("CosineAnnealingLR", {"T_max": 30}),
    ("CosineAnnealingLR", {"T_max": 29, "eta_min": 0.001}),
    # Past T_max the rate rises again.
    ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    ("LinearLR", {}),
    (WARMUP["scheduler"], WARMUP["init"]),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 30}),
    (
        "SequentialLR",
        {
            "schedulers": [WARMUP, {"scheduler": "CosineAnnealingLR", "init": {"T_max": 25}}],
            "milestones": [5],
        },
    ),
    (
        "SequentialLR",
        {
            "schedulers": [
                WARMUP,
                {"scheduler": "ConstantLR", "init": {"factor": 1.0, "total_iters": 0}},
                {"scheduler": "StepLR", "init": {"step_size": 3, "gamma": 0.5}},
            ],
            "milestones": [5, 12],
        },
    ),
]


def add_case(vectors, k, name, init):
    params = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
    args = [vectors.encode(params, f"{k}/a.0")]
    optimizer = getattr(torch.optim, name)(params, **init)
    grads, after = [], []
    for _ in range(STEPS):
        for p in params:
            p.grad = torch.randn_like(p)
        grads.append([p.grad for p in params])
        optimizer.step()
        after += [p.detach().clone() for p in params]
    kw = {**init, "grads": vectors.encode(grads, f"{k}/k.grads")}
    n = vectors.outputs(k, after, [])
    vectors.cases.append({"k": k, "op": f"optim.{name}", "var": "", "a": args, "kw": kw, "n": n})


def schedule(optimizer, name, init):
    if name == "SequentialLR":
        parts = [schedule(optimizer, part["scheduler"], part["init"]) for part in init["schedulers"]]
        init = {"schedulers": parts, "milestones": init["milestones"]}
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **init)


def rates(name, init, base_lr):
    """The rate of each epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base_lr)
    stepper = schedule(optimizer, name, init)
    lr = []
    for _ in range(EPOCHS):
        lr.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        stepper.step()
    return lr


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}
    for name, init in OPTIMIZERS:
        index = count[name] = count.get(name, -1) + 1
        add_case(vectors, f"optim.{name}/{index}", name, init)
    vectors.save(ROOT / "conformance" / "data" / "optimizers", LIMIT)

    lines = []
    for name, init in SCHEDULES:
        index = count[name] = count.get(name, -1) + 1
        case = {"k": f"{name}/{index}", "scheduler": name, "init": init, "base_lr": 0.1, "lr": rates(name, init, 0.1)}
        lines.append(json.dumps(case, allow_nan=False))
    (ROOT / "crates" / "nn" / "tests" / "data" / "schedules.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(", ".join(f"{name} {n + 1}" for name, n in count.items()))


if __name__ == "__main__":
    main()
