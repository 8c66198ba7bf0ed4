"""Records results of PyTorch's attention and transformer layers, with which Polygrad's are compared.

    python3 scripts/make_transformer_vectors.py

Writes conformance/data/transformer in the format of scripts/make_module_vectors.py. Keyword arguments of the call keep
their names: masks, is_causal, need_weights. The arguments of a stack's layers are named "layer.<name>". Dropout is 0 in
training mode.

Rotary positions have no class in PyTorch: "rotary_embedding" is the transform that Hugging Face's Llama ("halves") and
GPT-J ("adjacent") apply to queries, with angles from Su et al., "RoFormer" (2021), computed in f64.
"positional_encoding" is Vaswani et al. (2017).

Made with PyTorch 2.13.0, transformers 5.23.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11, on a CPU.
"""

import pathlib

import torch
from torch import nn

from make_module_vectors import add_module, r
from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "transformer"
LIMIT = 1_500_000
E, H = 8, 2
F64 = torch.float64


def hidden(*rows):
    """A bool mask: true hides."""
    return torch.tensor(rows, dtype=torch.bool)


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def attentions():
    """(init, inputs, keyword arguments of the call) of nn.MultiheadAttention."""
    base = {"embed_dim": E, "num_heads": H}
    first = {**base, "batch_first": True}
    self_ = lambda *shape: [x := r(*shape), x.clone(), x.clone()]
    yield base, [r(3, 2, E), r(4, 2, E), r(4, 2, E)], {}
    yield first, [r(2, 3, E), r(2, 4, E), r(2, 4, E)], {}
    yield {**first, "bias": False}, self_(2, 3, E), {}
    yield {**first, "num_heads": 1}, self_(1, 1, E), {}
    yield {**first, "num_heads": 8}, self_(2, 3, E), {}
    yield {**first, "kdim": 5, "vdim": 6}, [r(2, 3, E), r(2, 4, 5), r(2, 4, 6)], {}
    yield {**base, "kdim": 5, "bias": False}, [r(3, 2, E), r(4, 2, 5), r(4, 2, E)], {}
    yield base, [r(3, E), r(4, E), r(4, E)], {}
    yield first, self_(2, 3, E), {"attn_mask": causal(3)}
    yield first, self_(2, 3, E), {"attn_mask": causal(3), "is_causal": True}
    yield first, [r(2, 3, E), r(2, 4, E), r(2, 4, E)], {"attn_mask": r(3, 4)}
    yield first, [r(2, 3, E), r(2, 4, E), r(2, 4, E)], {"attn_mask": r(2 * H, 3, 4)}
    pads = hidden([0, 0, 0, 1], [0, 0, 1, 1])
    yield first, [r(2, 3, E), r(2, 4, E), r(2, 4, E)], {"key_padding_mask": pads}
    yield first, [r(2, 3, E), r(2, 4, E), r(2, 4, E)], {"key_padding_mask": r(2, 4)}
    both = {"attn_mask": causal(4), "key_padding_mask": pads}
    yield first, self_(2, 4, E), both
    yield base, self_(4, 2, E), {"attn_mask": r(4, 4), "key_padding_mask": pads.to(F64) * -2}
    yield first, self_(2, 4, E), {**both, "need_weights": True}
    yield base, [r(3, E), r(4, E), r(4, E)], {"need_weights": True, "key_padding_mask": hidden(0, 0, 1, 0)}


def added_keys():
    """(init, inputs, keyword arguments of the call) of nn.MultiheadAttention with added keys."""
    base = {"embed_dim": E, "num_heads": H}
    first = {**base, "batch_first": True}
    bias, zero = {"add_bias_kv": True}, {"add_zero_attn": True}
    three = lambda: [r(2, 3, E), r(2, 4, E), r(2, 4, E)]
    pads = hidden([0, 0, 0, 1], [0, 0, 1, 1])
    yield {**base, **bias}, [r(3, 2, E), r(4, 2, E), r(4, 2, E)], {}
    yield {**first, **zero}, three(), {}
    yield {**first, **bias, **zero, "bias": False, "kdim": 4}, [r(2, 3, E), r(2, 4, 4), r(2, 4, E)], {"need_weights": True}
    yield {**base, **bias, **zero}, [r(3, E), r(4, E), r(4, E)], {"key_padding_mask": hidden(0, 0, 1, 0)}
    yield {**first, **bias}, three(), {"attn_mask": r(2 * H, 3, 4), "key_padding_mask": r(2, 4)}
    yield {**first, **bias, **zero}, three(), {"attn_mask": hidden([0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1])}
    yield {**first, **zero}, three(), {"attn_mask": r(3, 4), "key_padding_mask": pads.to(F64) * -2, "need_weights": True}
    yield {**first, **bias}, three(), {"attn_mask": hidden(*[[0, 1, 0, 0]] * 3), "key_padding_mask": pads}


def layers():
    """(class, init, inputs, keyword arguments of the call) of the transformer layers."""
    base = {"d_model": E, "nhead": H, "dim_feedforward": 12, "dropout": 0.0}
    first = {**base, "batch_first": True}
    pads, memory_pads = hidden([0, 0, 0], [0, 0, 1]), hidden([0, 0, 0, 0], [0, 1, 0, 1])
    enc, dec = "TransformerEncoderLayer", "TransformerDecoderLayer"
    forms = [
        base,
        first,
        {**first, "norm_first": True},
        {**first, "activation": "gelu", "layer_norm_eps": 1e-3},
        {**first, "bias": False, "norm_first": True, "activation": "gelu"},
    ]
    for init in forms:
        shape = (2, 3, E) if init.get("batch_first") else (3, 2, E)
        memory = (2, 4, E) if init.get("batch_first") else (4, 2, E)
        yield enc, init, [r(*shape)], {}
        yield enc, init, [r(*shape)], {"src_mask": causal(3), "src_key_padding_mask": pads}
        yield dec, init, [r(*shape), r(*memory)], {}
        masks = {"tgt_mask": causal(3), "tgt_key_padding_mask": pads, "memory_key_padding_mask": memory_pads}
        yield dec, init, [r(*shape), r(*memory)], masks
    yield enc, first, [r(1, 1, E)], {}
    yield enc, base, [r(3, E)], {}
    yield enc, first, [r(2, 3, E)], {"src_mask": r(3, 3)}
    yield dec, base, [r(3, E), r(5, E)], {"tgt_mask": causal(3), "memory_mask": r(3, 5)}
    yield dec, first, [r(1, 1, E), r(1, 1, E)], {}


def of_layer(config):
    return {f"layer.{key}": value for key, value in config.items()}


def stacks():
    """(class, arguments, module, inputs, keyword arguments of the call) of several layers."""
    layer = {"d_model": E, "nhead": H, "dim_feedforward": 12, "dropout": 0.0, "batch_first": True}
    pre = {**layer, "norm_first": True, "activation": "gelu"}
    pads, memory_pads = hidden([0, 0, 0], [0, 0, 1]), hidden([0, 0, 0, 0], [0, 1, 0, 1])
    for config, norm in ((layer, False), (pre, True)):
        final = lambda: nn.LayerNorm(E, dtype=F64) if norm else None
        init = {**of_layer(config), "num_layers": 2, "norm": norm}
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**config), 2, final(), enable_nested_tensor=False)
        yield "TransformerEncoder", init, encoder, [r(2, 3, E)], {"mask": causal(3), "src_key_padding_mask": pads}
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**config), 2, final())
        masks = {"tgt_mask": causal(3), "memory_key_padding_mask": memory_pads}
        yield "TransformerDecoder", init, decoder, [r(2, 3, E), r(2, 4, E)], masks
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    whole = nn.Transformer(**pre, **sizes)
    masks = {"tgt_mask": causal(3), "src_key_padding_mask": memory_pads, "memory_key_padding_mask": memory_pads}
    yield "Transformer", {**of_layer(pre), **sizes}, whole, [r(2, 4, E), r(2, 3, E)], masks


def randomize(module):
    """Weights of trained size, so that attention is not all on one key."""
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(std=0.4)


def add(vectors, count, name, init, module, inputs, call):
    index = count[name] = count.get(name, -1) + 1
    module = module.to(F64)
    randomize(module)
    run = lambda *xs: module(*xs, **call)
    if name == "MultiheadAttention":
        weights = call.get("need_weights", False)

        def run(*xs):
            out, seen = module(*xs, **{**call, "need_weights": weights, "average_attn_weights": False})
            if not weights:
                return out
            return out, seen if seen.dim() == 4 else seen.unsqueeze(0)

    add_module(vectors, f"nn.{name}/{index}", name, init, module, inputs, True, run, call)


def rotary(vectors):
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as adjacent
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as halves

    cases = [("halves", 1e4, 0, (2, 3, 4, 6)), ("halves", 500.0, 7, (1, 1, 5, 8)), ("adjacent", 1e4, 0, (2, 3, 4, 6))]
    cases += [("adjacent", 500.0, 7, (1, 2, 1, 2)), ("halves", 1e4, 3, (2, 1, 2))]
    for index, (pairs, base, offset, shape) in enumerate(cases):
        k = f"rotary_embedding/{index}"
        x = r(*shape).requires_grad_()
        four = x if x.dim() == 4 else x.unsqueeze(0)
        places = torch.arange(offset, offset + shape[-2], dtype=F64)
        angles = torch.outer(places, base ** (-torch.arange(0, shape[-1], 2, dtype=F64) / shape[-1]))
        if pairs == "halves":
            both = torch.cat((angles, angles), -1)[None]
            y = halves(four, four, both.cos(), both.sin())[0]
        else:
            # In GPT-J the axis of heads follows the axis of positions.
            y = adjacent(four.transpose(1, 2), angles.sin()[None], angles.cos()[None]).transpose(1, 2)
        y = y.reshape(shape)
        kw = {"base": base, "offset": offset, "pairs": pairs}
        args = [vectors.encode(x, f"{k}/a.0")]
        n = vectors.outputs(k, [y], [(f"{k}/a.0", x)])
        vectors.cases.append({"k": k, "op": "rotary_embedding", "var": "", "a": args, "kw": kw, "n": n})


def positions(vectors):
    for index, (offset, shape) in enumerate([(0, (2, 3, 6)), (5, (4, 2))]):
        k = f"positional_encoding/{index}"
        x = r(*shape).requires_grad_()
        places = torch.arange(offset, offset + shape[-2], dtype=F64)
        angles = torch.outer(places, 1e4 ** (-torch.arange(0, shape[-1], 2, dtype=F64) / shape[-1]))
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)
        args = [vectors.encode(x, f"{k}/a.0")]
        n = vectors.outputs(k, [x + table], [(f"{k}/a.0", x)])
        vectors.cases.append(
            {"k": k, "op": "positional_encoding", "var": "", "a": args, "kw": {"offset": offset}, "n": n}
        )


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}
    for init, inputs, call in attentions():
        add(vectors, count, "MultiheadAttention", init, nn.MultiheadAttention(**init), inputs, call)
    for name, init, inputs, call in layers():
        add(vectors, count, name, init, getattr(nn, name)(**init), inputs, call)
    for name, init, module, inputs, call in stacks():
        add(vectors, count, name, init, module, inputs, call)
    rotary(vectors)
    positions(vectors)
    for init, inputs, call in added_keys():
        add(vectors, count, "MultiheadAttention", init, nn.MultiheadAttention(**init), inputs, call)
    vectors.save(OUT, LIMIT)
    print(", ".join(f"{name} {n + 1}" for name, n in count.items()))


if __name__ == "__main__":
    main()
