"""Record what Hugging Face's language models write: the tokens that Polygrad's generation is held to.

    python3 scripts/make_generation_vectors.py

Writes crates/nn/tests/data/generation: cases.json, a list of models, each with its class, config, prompts (padded on the left with "pad" where
they differ in length), how many tokens are added, the options of `generate`, and the sequences that come out, without the padding; and
weights.safetensors, whose names begin with the number of the model. All is greedy and in f32. With a repetition penalty each prompt is run
alone, since transformers also counts the padding as tokens that have been seen. And sampling.json, rows of logits and the tokens before them,
and for each set of options how likely transformers makes each token.

Made with PyTorch 2.13.0, transformers 5.23.0, safetensors 0.8.0 and Python 3.11, on a CPU.
"""

import json
import pathlib

import torch
import transformers as hf
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "nn" / "tests" / "data" / "generation"
PAD = 0
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]


def models():
    base = {"vocab_size": 23, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "tie_word_embeddings": False}
    yield "GPT2LMHeadModel", base, hf.GPT2LMHeadModel(hf.GPT2Config(**base))
    base = {"vocab_size": 23, "max_position_embeddings": 32, "hidden_size": 16, "intermediate_size": 24}
    base = {**base, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    yield "LlamaForCausalLM", base, hf.LlamaForCausalLM(hf.LlamaConfig(**base))


def written(model, prompts, count, options):
    """The sequences, without padding."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    rows = model.generate(
        ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=PAD, **options
    ).tolist()
    out = []
    for row, prompt in zip(rows, prompts):
        new = row[longest:]
        if "eos_token_id" in options and options["eos_token_id"] in new:
            new = new[: new.index(options["eos_token_id"]) + 1]
        out.append(prompt + new)
    return out


def varied(model):
    """Weights with which the model does not repeat itself, and what it writes."""
    for seed in range(1000):
        torch.manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(std=0.5)
        free = written(model, PROMPTS, 12, {})
        if all(len(set(row[-12:])) > 4 for row in free):
            return free
    raise SystemExit("the model repeats itself with all seeds")


OPTIONS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8},
    {"temperature": 0.7},
    {"temperature": 2.5},
    {"top_k": 5},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"min_p": 0.4},
    {"min_p": 1.0},
    {"top_k": 8, "top_p": 0.85, "min_p": 0.1},
    {"repetition_penalty": 1.7, "temperature": 0.6, "top_k": 12, "top_p": 0.95, "min_p": 0.02},
    {"repetition_penalty": 1.2, "temperature": 1.9, "top_p": 0.7, "min_p": 0.3},
]


def chances(logits, seen, options):
    """What the processors of `generate` leave, in its order."""
    makers = {
        "repetition_penalty": hf.RepetitionPenaltyLogitsProcessor,
        "temperature": hf.TemperatureLogitsWarper,
        "top_k": hf.TopKLogitsWarper,
        "top_p": hf.TopPLogitsWarper,
        "min_p": hf.MinPLogitsWarper,
    }
    row = torch.tensor([logits], dtype=torch.float64)
    for name, make in makers.items():
        if name in options:
            row = make(options[name])(torch.tensor([seen]), row)
    return row.softmax(-1)[0].tolist()


def sampling():
    generator = torch.Generator().manual_seed(5)
    for scale in (0.5, 2.0, 6.0):
        logits = (torch.randn(31, generator=generator) * scale).round(decimals=3).double().tolist()
        seen = torch.randint(31, (9,), generator=generator).tolist()
        runs = [{"options": options, "chances": chances(logits, seen, options)} for options in OPTIONS]
        yield {"logits": logits, "seen": seen, "runs": runs}


def main():
    torch.set_num_threads(1)
    cases, weights = [], {}
    for number, (name, config, model) in enumerate(models()):
        model.eval()
        model.generation_config.eos_token_id = None
        free = varied(model)
        for key, value in model.state_dict().items():
            weights[f"{number}/{key}"] = value.clone().contiguous()
        end = free[1][6]
        runs = [
            {"options": {}, "rows": free},
            {"options": {"eos_token_id": end}, "rows": written(model, PROMPTS, 12, {"eos_token_id": end})},
        ]
        for penalty in (1.3, 3.0, 0.7):
            options = {"repetition_penalty": penalty}
            runs.append({"options": options, "rows": [written(model, [p], 12, options)[0] for p in PROMPTS]})
        cases.append({"class": name, "config": config, "prompts": PROMPTS, "count": 12, "runs": runs})
        for run in runs:
            print(name, run["options"], run["rows"][0])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    (OUT / "sampling.json").write_text(json.dumps(list(sampling()), separators=(",", ":")) + "\n")
    save_file(weights, OUT / "weights.safetensors")
    (OUT / "weights.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
