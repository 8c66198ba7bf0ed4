"""Records results of PyTorch's optimizers and learning rate schedules, with which Polygrad's are compared.

    python3 scripts/make_optimizer_vectors.py

Writes conformance/data/optimizers, in f64, in the format of scripts/vector_set.py: `op` is the class, "optim.SGD", `a`
the list of parameters before the first step, and `kw` the keyword arguments and "grads": the parameters' gradients of
each step. The outputs are the parameters after the first step, then those after the second, and so on. If there are
groups, `a` has a list of parameters for each, and "group1.lr" is the second group's value of "lr".

Optimizers that PyTorch lacks come from other packages: Lion from lion-pytorch 0.2.5, LAMB from timm 1.0.31
(`max_grad_norm=None`). PyTorch's Muon computes its iteration in bf16; here `Tensor.bfloat16` is replaced, so that
PyTorch's own code computes it in f64.

Also writes crates/nn/tests/data/schedules.json, a list of
    {"k": name, "scheduler": class in torch.optim.lr_scheduler, "init": {…}, "base_lr": lr, "lr": [30 numbers]}
where lr[e] is the rate in epoch e, with one `step` of the schedule after each epoch. A SequentialLR's `init` holds
{"schedulers": [{"scheduler", "init"}, …], "milestones": […]}, a ChainedScheduler's only the schedulers. A OneCycleLR
also has "momentum", and its `max_lr` is `base_lr`; a ReduceLROnPlateau has "metrics", one after each epoch.

Also writes crates/nn/tests/data/ema.json, the averages that `AveragedModel` with `get_ema_multi_avg_fn` computes of a
linear layer and a batch normalisation:
    [{"use_buffers": bool, "decay": number, "models": [a state dict after each of 4 changes], "averages": [the same]}, …]
where a state dict is {name: flat list of values}.

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import json
import math
import pathlib

import torch
from lion_pytorch import Lion
from timm.optim.lamb import Lamb

from vector_set import VectorSet

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = [(3, 2), (4,)]
MATRICES = [(3, 2), (2, 4)]
STEPS, EPOCHS = 5, 30
BASE_LR = 0.1
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
    ("Lion", {"lr": 0.001}),
    ("Lion", {"lr": 0.001, "betas": [0.8, 0.95]}),
    ("Lion", {"lr": 0.001, "weight_decay": 0.1}),
    ("LAMB", {"lr": 0.01}),
    ("LAMB", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1}),
    ("LAMB", {"lr": 0.01, "weight_decay": 0.0}),
    ("LAMB", {"lr": 0.01, "weight_decay": 0.0, "always_adapt": True}),
    ("LAMB", {"lr": 0.01, "trust_clip": True}),
    ("Muon", {"lr": 0.02}),
    ("Muon", {"lr": 0.02, "weight_decay": 0.0, "nesterov": False}),
    ("Muon", {"lr": 0.02, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw"}),
    ("Muon", {"lr": 0.02, "adjust_lr_fn": "original", "ns_steps": 3, "ns_coefficients": [2.0, -1.5, 0.5], "eps": 1e-5}),
]

# The options of a first and a second group, each with one parameter of SHAPES.
GROUPS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}, {"lr": 0.01, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.1, "weight_decay": 0.0, "betas": [0.8, 0.95]}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}, {"weight_decay": 0.0, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01}, {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Lion", {"lr": 0.001, "weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0.0}),
    ("LAMB", {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.1, "weight_decay": 0.0}),
    ("Muon", {"lr": 0.02}, {"lr": 0.1, "weight_decay": 0.0, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
]

# After the groups, so that earlier cases keep their random numbers. RAdam rectifies from its sixth step on, or earlier
# with another beta2.
FURTHER = [
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-4}),
    ("Adadelta", {"lr": 1.0}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "betas": [0.8, 0.7], "eps": 1e-4, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01, "betas": [0.9, 0.8], "weight_decay": 0.1, "decoupled_weight_decay": True}),
]
FURTHER_GROUPS = [
    ("Adagrad", {"lr": 0.1}, {"lr": 0.01, "lr_decay": 0.2}),
    ("NAdam", {"lr": 0.01}, {"lr": 0.1, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01, "betas": [0.9, 0.8]}, {"lr": 0.1, "betas": [0.8, 0.9]}),
]

MAXIMIZED = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("RMSprop", {"lr": 0.01, "centered": True, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
]
MAXIMIZED_GROUPS = [("SGD", {"lr": 0.1, "maximize": True}, {"maximize": False})]

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
    ("ExponentialLR", {"gamma": 0.9}),
    ("MultiStepLR", {"milestones": [3, 8, 8, 20]}),
    ("MultiStepLR", {"milestones": [10, 5], "gamma": 0.5}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 20, "power": 2.0}),
    ("OneCycleLR", {"total_steps": 30}),
    ("OneCycleLR", {"total_steps": 30, "anneal_strategy": "linear", "pct_start": 0.4}),
    ("OneCycleLR", {"total_steps": 30, "three_phase": True}),
    (
        "OneCycleLR",
        {
            "total_steps": 27,
            "three_phase": True,
            "anneal_strategy": "linear",
            "div_factor": 10.0,
            "final_div_factor": 100.0,
            "base_momentum": 0.8,
            "max_momentum": 0.9,
        },
    ),
    ("ChainedScheduler", {"schedulers": [WARMUP, {"scheduler": "ExponentialLR", "init": {"gamma": 0.9}}]}),
    (
        "ChainedScheduler",
        {
            "schedulers": [
                {"scheduler": "ConstantLR", "init": {"factor": 0.1, "total_iters": 4}},
                {"scheduler": "MultiStepLR", "init": {"milestones": [6, 12], "gamma": 0.5}},
                {"scheduler": "CosineAnnealingLR", "init": {"T_max": 29}},
            ],
        },
    ),
    ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"max_lr": 0.5, "step_size_up": 4}),
    ("CyclicLR", {"max_lr": 0.5, "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"}),
    ("CyclicLR", {"max_lr": 0.5, "step_size_up": 6, "mode": "exp_range", "gamma": 0.9}),
    ("ReduceLROnPlateau", {"patience": 2}),
    ("ReduceLROnPlateau", {"patience": 1, "factor": 0.5, "cooldown": 3, "min_lr": 0.02}),
    ("ReduceLROnPlateau", {"mode": "max", "patience": 3, "threshold": 0.1, "threshold_mode": "abs"}),
    ("ReduceLROnPlateau", {"mode": "max", "patience": 0, "threshold": 0.5, "factor": 0.8, "eps": 0.01}),
    ("ReduceLROnPlateau", {"patience": 0, "threshold": 0.3, "threshold_mode": "abs", "factor": 0.7}),
]


def build(name, params, init):
    """The optimizer of a case."""
    if name == "Lion":
        return Lion(params, **init)
    if name == "LAMB":
        return Lamb(params, max_grad_norm=None, **init)
    return getattr(torch.optim, name)(params, **init)


def add_case(vectors, k, name, init, second=None):
    shapes = MATRICES if name == "Muon" else SHAPES
    params = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    groups = [params] if second is None else [[p] for p in params]
    args = [vectors.encode(group, f"{k}/a.{i}") for i, group in enumerate(groups)]
    optimizer = build(name, groups[0], init)
    kw = dict(init)
    if second is not None:
        optimizer.add_param_group({"params": groups[1], **second})
        kw |= {f"group1.{key}": value for key, value in second.items()}
    grads, after = [], []
    for _ in range(STEPS):
        for p in params:
            p.grad = torch.randn_like(p)
        grads.append([p.grad for p in params])
        optimizer.step()
        after += [p.detach().clone() for p in params]
    kw["grads"] = vectors.encode(grads, f"{k}/k.grads")
    n = vectors.outputs(k, after, [])
    vectors.cases.append({"k": k, "op": f"optim.{name}", "var": "", "a": args, "kw": kw, "n": n})


def schedule(optimizer, name, init):
    if "schedulers" in init:
        parts = [schedule(optimizer, part["scheduler"], part["init"]) for part in init["schedulers"]]
        if name == "ChainedScheduler":
            return torch.optim.lr_scheduler.ChainedScheduler(parts)
        init = {"schedulers": parts, "milestones": init["milestones"]}
    if name == "CyclicLR":
        init = {"base_lr": BASE_LR, "cycle_momentum": False, **init}
    if name == "OneCycleLR":
        init = {"max_lr": BASE_LR, **init}
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **init)


def rates(name, init):
    """The values that a case records: each epoch's rate, and the schedule's other values."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE_LR, momentum=0.9)
    stepper = schedule(optimizer, name, init)
    metrics = [round(2 / (1 + 0.3 * e) + 0.6 * math.sin(e), 3) for e in range(EPOCHS)]
    lr, momentum = [], []
    for epoch in range(EPOCHS):
        lr.append(optimizer.param_groups[0]["lr"])
        momentum.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if name == "ReduceLROnPlateau":
            stepper.step(metrics[epoch])
        # A step past the last one is an error in PyTorch.
        elif name != "OneCycleLR" or epoch + 1 < init["total_steps"]:
            stepper.step()
    more = {"OneCycleLR": {"momentum": momentum}, "ReduceLROnPlateau": {"metrics": metrics}}
    return {"lr": lr, **more.get(name, {})}


def flat(state):
    return {name: value.flatten().tolist() for name, value in state.items()}


def averages(use_buffers, decay):
    """The values of a changing model and of its average."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(torch.float64)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay), use_buffers=use_buffers
    )
    models, after = [], []
    for _ in range(4):
        with torch.no_grad():
            for value in [*model.parameters(), *model.buffers()]:
                value.add_(1) if value.dtype == torch.int64 else value.normal_()
        average.update_parameters(model)
        models.append(flat(model.state_dict()))
        after.append(flat(average.state_dict()))
    return {"use_buffers": use_buffers, "decay": decay, "models": models, "averages": after}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.Tensor.bfloat16 = torch.Tensor.clone
    vectors, count = VectorSet(), {}
    for name, init in OPTIMIZERS:
        index = count[name] = count.get(name, -1) + 1
        add_case(vectors, f"optim.{name}/{index}", name, init)
    for name, *inits in GROUPS:
        index = count[name] = count.get(name, -1) + 1
        add_case(vectors, f"optim.{name}/{index}", name, *inits)
    for name, *inits in FURTHER + FURTHER_GROUPS:
        index = count[name] = count.get(name, -1) + 1
        add_case(vectors, f"optim.{name}/{index}", name, *inits)
    # Random numbers of their own, so that the averages below keep theirs.
    with torch.random.fork_rng():
        for name, *inits in MAXIMIZED + MAXIMIZED_GROUPS:
            index = count[name] = count.get(name, -1) + 1
            add_case(vectors, f"optim.{name}/{index}", name, *inits)
    vectors.save(ROOT / "conformance" / "data" / "optimizers", LIMIT)

    lines = []
    for name, init in SCHEDULES:
        index = count[name] = count.get(name, -1) + 1
        case = {"k": f"{name}/{index}", "scheduler": name, "init": init, "base_lr": BASE_LR, **rates(name, init)}
        lines.append(json.dumps(case, allow_nan=False))
    (ROOT / "crates" / "nn" / "tests" / "data" / "schedules.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    lines = [json.dumps(averages(*case)) for case in ((False, 0.9), (True, 0.7))]
    (ROOT / "crates" / "nn" / "tests" / "data" / "ema.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(", ".join(f"{name} {n + 1}" for name, n in count.items()))


if __name__ == "__main__":
    main()
