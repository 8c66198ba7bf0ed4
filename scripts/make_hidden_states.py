"""Records the hidden states of small models of transformers: crates/nn/tests/data/hidden.

    pip install torch==2.13.0 transformers==5.24.0 safetensors
    python3 scripts/make_hidden_states.py
"""

import json
from pathlib import Path

import torch
import transformers as hf
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parent.parent / "crates/nn/tests/data/hidden"


def models():
    common = {"vocab_size": 17}
    bert = common | {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    bert |= {"max_position_embeddings": 10}
    yield "bert", bert, hf.BertModel(hf.BertConfig(**bert))
    gpt2 = common | {"n_positions": 10, "n_embd": 8, "n_layer": 2, "n_head": 2}
    yield "gpt2", gpt2, hf.GPT2Model(hf.GPT2Config(**gpt2))
    llama = common | {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    llama |= {"intermediate_size": 12, "max_position_embeddings": 10}
    yield "llama", llama, hf.LlamaModel(hf.LlamaConfig(**llama))
    t5 = common | {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2}
    yield "t5", t5, hf.T5ForConditionalGeneration(hf.T5Config(**t5))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    tensors, cases = {}, {}
    for name, config, model in models():
        model.eval()
        # Values that are not close to 0, and norm weights that are not 1.
        for parameter in model.parameters():
            parameter.data.normal_(0.1, 0.5)
        ids = torch.randint(0, 17, (2, 6))
        mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
        call = {"input_ids": ids, "output_hidden_states": True}
        if name in ("bert", "t5"):
            call["attention_mask"] = mask
        if name == "t5":
            call["decoder_input_ids"] = torch.randint(0, 17, (2, 4))
        with torch.no_grad():
            out = model(**call)
        states = {"hidden": out.get("hidden_states")}
        if name == "t5":
            states = {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}
        tensors |= {f"{name}/weights/{key}": value.clone() for key, value in model.state_dict().items()}
        for key, values in states.items():
            tensors |= {f"{name}/{key}/{i}": value.contiguous() for i, value in enumerate(values)}
        inputs = {key: call[key].tolist() for key in call if key.endswith(("_ids", "_mask"))}
        cases[name] = {"config": config, **inputs, **{key: len(values) for key, values in states.items()}}
    save_file(tensors, OUT / "states.safetensors")
    (OUT / "cases.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "\n}\n")


main()
