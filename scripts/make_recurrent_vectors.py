"""Records results of PyTorch's recurrent layers and cells, with which Polygrad's are compared.

    python3 scripts/make_recurrent_vectors.py

Writes conformance/data/recurrent in the format of scripts/make_module_vectors.py. `a` is the input and, if given, the
state: a tensor, or [h, c] for LSTM. The keyword argument "lengths" says that the input was packed with these lengths,
in any order, and the output padded to the input's length again. The outputs are the output, which cells do not have,
and the parts of the state.

PyTorch has no MinGRU: it is written out below, one step at a time, from Feng et al., "Were RNNs all we needed?" (2024).

Made with PyTorch 2.13.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11. Any CPU build of PyTorch 2.13 runs it.
"""

import pathlib

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from make_module_vectors import add_module, r
from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "recurrent"
LIMIT = 1_500_000
C, H = 3, 4
SIZES = {"input_size": C, "hidden_size": H}


class MinGRU(torch.nn.Module):
    """h' = (1 - z) h + z g(W_h x), z = sigmoid(W_z x), g(x) = x + 0.5 for x >= 0 and sigmoid(x) below."""

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        self.linear_z = torch.nn.Linear(input_size, hidden_size, bias)
        self.linear_h = torch.nn.Linear(input_size, hidden_size, bias)

    def forward(self, x, h=None):
        z, new = torch.sigmoid(self.linear_z(x)), self.linear_h(x)
        new = torch.where(new >= 0, new + 0.5, torch.sigmoid(new))
        h = x.new_zeros(x.shape[0], z.shape[-1]) if h is None else h
        states = []
        for t in range(x.shape[1]):
            h = (1 - z[:, t]) * h + z[:, t] * new[:, t]
            states.append(h)
        return torch.stack(states, 1), h


def state_of(name, *shape):
    """A state whose parts have this shape."""
    return (r(*shape), r(*shape)) if name.startswith("LSTM") else r(*shape)


def layers(name):
    """(init, inputs, train, lengths) of RNN, LSTM or GRU."""
    deep = {"num_layers": 2, "bidirectional": True}
    yield {}, [r(4, 2, C)]
    yield {}, [r(4, 2, C), state_of(name, 1, 2, H)]
    yield {"bias": False}, [r(3, 2, C), state_of(name, 1, 2, H)]
    yield {"batch_first": True}, [r(2, 4, C), state_of(name, 1, 2, H)]
    yield {"num_layers": 2}, [r(3, 2, C), state_of(name, 2, 2, H)]
    yield {"num_layers": 3, "bias": False, "batch_first": True}, [r(2, 3, C)]
    yield {"bidirectional": True}, [r(4, 2, C)]
    yield deep, [r(3, 2, C), state_of(name, 4, 2, H)]
    yield {**deep, "bias": False, "batch_first": True}, [r(2, 3, C), state_of(name, 4, 2, H)]
    # Batch 1, length 1, both, and an input without a batch.
    yield {"bidirectional": True}, [r(3, 1, C)]
    yield deep, [r(1, 2, C), state_of(name, 4, 2, H)]
    yield {}, [r(1, 1, C)]
    yield {}, [r(4, C)]
    yield {**deep, "batch_first": True}, [r(3, C), state_of(name, 4, H)]
    yield {"num_layers": 2, "dropout": 0.5}, [r(3, 2, C)], False
    # Lengths that fall, rise, are mixed, are all equal, or leave trailing steps that no sequence uses.
    yield {}, [r(4, 3, C)], True, [4, 2, 1]
    yield {}, [r(4, 3, C), state_of(name, 1, 3, H)], True, [1, 4, 2]
    yield {"bidirectional": True}, [r(4, 3, C)], True, [2, 4, 1]
    yield {**deep, "batch_first": True}, [r(3, 4, C), state_of(name, 4, 3, H)], True, [3, 1, 4]
    yield {"bidirectional": True, "bias": False}, [r(4, 2, C), state_of(name, 2, 2, H)], True, [3, 2]
    yield {"num_layers": 2}, [r(3, 2, C)], True, [3, 3]
    yield {"bidirectional": True}, [r(3, 1, C)], True, [2]


def cells(name):
    """(init, inputs) of a cell."""
    yield {}, [r(2, C)]
    yield {}, [r(2, C), state_of(name, 2, H)]
    yield {"bias": False}, [r(1, C), state_of(name, 1, H)]
    yield {}, [r(C), state_of(name, H)]


def cases():
    """(class, init, inputs, train, lengths) of every case."""
    for name in ("RNN", "LSTM", "GRU"):
        for case in layers(name):
            yield name, *case
        for case in cells(f"{name}Cell"):
            yield f"{name}Cell", *case
    relu = {"nonlinearity": "relu"}
    yield "RNN", {**relu, "num_layers": 2, "bidirectional": True}, [r(3, 2, C), r(4, 2, H)]
    yield "RNN", relu, [r(4, 3, C)], True, [1, 4, 2]
    yield "RNNCell", relu, [r(2, C), r(2, H)]
    yield "MinGRU", {}, [r(2, 6, C)]
    yield "MinGRU", {}, [r(2, 5, C), r(2, H)]
    yield "MinGRU", {"bias": False}, [r(1, 7, C) * 5, r(1, H)]
    yield "MinGRU", {}, [r(3, 1, C), r(3, H)]
    yield "MinGRU", {}, [r(1, 16, C) * 30]


def packed(module, lengths, x, state=None):
    """The module's result if only the first steps of each sequence count."""
    first = module.batch_first
    pack = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
    output, state = module(pack, state)
    return pad_packed_sequence(output, batch_first=first, total_length=x.shape[1 if first else 0])[0], state


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}
    for name, init, inputs, *rest in cases():
        train, lengths = [*rest, *[True, None][len(rest) :]]
        count[name] = count.get(name, 0) + 1
        init = {**SIZES, **init}
        # The parameters keep their initial values, which are already random.
        module = (MinGRU if name == "MinGRU" else getattr(torch.nn, name))(**init).to(torch.float64)
        run, extra = None, None
        if lengths:
            run, extra = (lambda *a, m=module, l=lengths: packed(m, l, *a)), {"lengths": lengths}
        add_module(vectors, f"nn.{name}/{count[name] - 1}", name, init, module, inputs, train, run, extra)
    vectors.save(OUT, LIMIT)
    print(", ".join(f"{name} {n}" for name, n in count.items()))


if __name__ == "__main__":
    main()
