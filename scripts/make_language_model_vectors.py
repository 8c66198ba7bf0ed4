"""Records outputs of Hugging Face's language models, with which Polygrad's are compared.

    python3 scripts/make_language_model_vectors.py

Writes conformance/data/language in the format of scripts/make_module_vectors.py. `op` is the class in transformers, `a`
the token ids, "config" the model's config as JSON, and "attention_mask" and "token_type_ids" are keyword arguments of
the call. Dropout is 0 in training mode. The outputs are the logits.

Made with PyTorch 2.13.0, transformers 5.23.0, safetensors 0.8.0, NumPy 2.4.6 and Python 3.11, on a CPU.
"""

import pathlib

import torch
import transformers as hf
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, Qwen2RotaryEmbedding
from transformers.models.t5.modeling_t5 import T5LayerNorm

from make_module_vectors import add_module, i
from vector_set import VectorSet

OUT = pathlib.Path(__file__).resolve().parent.parent / "conformance" / "data" / "language"
LIMIT = 1_500_000
V = 13


def mask(*lengths):
    """Ones for the tokens of each sequence, then zeros."""
    width = max(lengths)
    return torch.tensor([[int(place < length) for place in range(width)] for length in lengths])


def gpt2():
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    base = {"vocab_size": V, "n_positions": 6, "n_embd": 8, "n_layer": 2, "n_head": 2, **drop}
    forms = [
        (base, (2, 5)),
        ({**base, "tie_word_embeddings": False, "n_inner": 12, "activation_function": "silu"}, (1, 6)),
        ({**base, "scale_attn_by_inverse_layer_idx": True, "n_head": 4, "activation_function": "gelu"}, (2, 1)),
        ({**base, "scale_attn_weights": False, "n_layer": 1, "layer_norm_epsilon": 1e-3}, (2, 3)),
    ]
    for config, shape in forms:
        model = hf.GPT2LMHeadModel(hf.GPT2Config(**config, use_cache=False))
        yield "GPT2LMHeadModel", config, model, [i(0, V, *shape)], {}


def bert():
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    base = {**sizes, "max_position_embeddings": 6, "num_labels": 3, **drop}
    types = {"token_type_ids": torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]])}
    yield base, (2, 4), {}
    yield base, (2, 4), {"attention_mask": mask(4, 2), **types}
    yield {**base, "hidden_act": "gelu_new", "num_labels": 1, "layer_norm_eps": 1e-3}, (1, 6), {}
    yield {**base, "pad_token_id": 3, "num_hidden_layers": 1}, (1, 1), {}


def t5():
    sizes = {"vocab_size": V, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_heads": 2}
    base = {**sizes, "relative_attention_num_buckets": 6, "relative_attention_max_distance": 8, "dropout_rate": 0.0}
    yield base, (2, 7), (2, 4), {}
    yield base, (2, 5), (2, 3), {"attention_mask": mask(5, 2)}
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1}
    yield {**base, **gated}, (1, 12), (1, 9), {}
    yield {**base, "feed_forward_proj": "gated-silu", "num_layers": 1}, (1, 1), (1, 1), {}


def llama():
    sizes = {"vocab_size": V, "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2}
    base = {**sizes, "max_position_embeddings": 16}
    llama3 = {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    }
    forms = [
        (base, (2, 5)),
        ({**base, "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True}, (2, 4)),
        ({**base, "head_dim": 4, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}, (1, 6)),
        ({**base, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}, (1, 7)),
        ({**base, "rope_parameters": {**llama3, "rope_theta": 30.0}, "rms_norm_eps": 1e-3}, (1, 9)),
    ]
    for config, shape in forms:
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**config, use_cache=False))
        yield "LlamaForCausalLM", config, model, [i(0, V, *shape)], {}
    qwen2 = {**base, "num_key_value_heads": 1, "model_type": "qwen2"}
    model = hf.Qwen2ForCausalLM(hf.Qwen2Config(**{k: v for k, v in qwen2.items() if k != "model_type"}, use_cache=False))
    yield "LlamaForCausalLM", qwen2, model, [i(0, V, 2, 4)], {}


def models():
    """(class, config, model, inputs, arguments by name)"""
    yield from gpt2()
    for config, shape, call in bert():
        model = hf.BertForSequenceClassification(hf.BertConfig(**config))
        yield "BertForSequenceClassification", config, model, [i(0, V, *shape)], call
    for config, text, answer, call in t5():
        model = hf.T5ForConditionalGeneration(hf.T5Config(**config, use_cache=False))
        if config.get("tie_word_embeddings") is False:
            # transformers 5 ties them anyway; T5 1.1, which uses such configs, does not.
            model.lm_head.weight = nn.Parameter(torch.empty(V, config["d_model"]))
        yield "T5ForConditionalGeneration", config, model, [i(0, V, *text), i(0, V, *answer)], call
    yield from llama()


def turns(rotary):
    """Llama computes its angles in f32 for every dtype; here they are computed in f64, as is transformers' own scaling
    of them."""
    arange, to_float = torch.arange, torch.float

    def doubled(*args, **kwargs):
        return arange(*args, **{**kwargs, "dtype": torch.float64})

    init = rotary.compute_default_rope_parameters
    if rotary.rope_type != "default":
        init = hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS[rotary.rope_type]
    torch.arange, torch.float = doubled, torch.float64
    try:
        frequencies, _ = init(rotary.config)
    finally:
        torch.arange, torch.float = arange, to_float
    assert frequencies.dtype == torch.float64

    def forward(x, position_ids):
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    return forward


def exact(norm):
    """T5's and Llama's norm computes the mean square in f32 for every dtype; here it is computed in f64."""

    def forward(x):
        return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)

    return forward


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, count = VectorSet(), {}
    for name, config, model, inputs, call in models():
        index = count[name] = count.get(name, -1) + 1
        model = model.to(torch.float64)
        for part in model.modules():
            if isinstance(part, (T5LayerNorm, LlamaRMSNorm, Qwen2RMSNorm)):
                part.forward = exact(part)
            if isinstance(part, (LlamaRotaryEmbedding, Qwen2RotaryEmbedding)):
                part.forward = turns(part)
        # Weights of trained size, so that every part of the model affects the output.
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(std=0.4)

        def run(ids, *more):
            named = {"decoder_input_ids": more[0]} if more else {}
            return model(input_ids=ids, **named, **call).logits

        add_module(vectors, f"{name}/{index}", name, {"config": config}, model, inputs, True, run, call, op=name)
    vectors.save(OUT, LIMIT)
    print(", ".join(f"{name} {n + 1}" for name, n in count.items()))


if __name__ == "__main__":
    main()
