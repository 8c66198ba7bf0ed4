"""Records how transformers, PEFT and sentence-transformers fine-tune a small BERT and a small Llama:
crates/cli/tests/data/finetune.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.0 sentence-transformers==6.2.0
    python3 scripts/make_finetune_cases.py target/release/polygrad

Every epoch is one step over all examples, so that their order does not matter. An adapter's initial values are taken
from a run of this program whose learning rate changes nothing. The cases of `write` were made with PyTorch 2.13 and
PEFT 0.21.2.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast, LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parent.parent / "crates/cli/tests/data/finetune"
EPOCHS, RATE = 12, 0.01
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
# So large that a step's logits exceed the part that is held at a time.
VOCABULARY = 6000
LABELS = ["number", "colour", "animal"]
WORDS = {
    "number": "one two three four five six".split(),
    "colour": "red blue green black white grey".split(),
    "animal": "cat dog cow hen pig owl".split(),
}
REST = "the a is of what name it this that and".split()
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 24}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3}


def tokenizer(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *REST, *sum(WORDS.values(), [])]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    made = BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, model_max_length=24)
    made.save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    return made, len(words)


def lines(name, rows):
    (OUT / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def labelled():
    rows = []
    for i in range(6):
        for label in LABELS:
            row = {"text": f"the {WORDS[label][i]} is it", "label": label}
            if i % 2:
                row["text_pair"] = f"what is this {WORDS[label][(i + 1) % 6]}"
            rows.append(row)
    return lines("labels.jsonl", rows[:12]), lines("labels-judged.jsonl", rows[12:])


def grouped(has_negative):
    rows = []
    for i in range(6):
        for at, label in enumerate(LABELS):
            word, other = WORDS[label][i], WORDS[LABELS[(at + 1) % 3]][i]
            row = {"anchor": f"what is {word}", "positive": f"{word} is the name of a {WORDS[label][(i + 2) % 6]}"}
            if has_negative:
                row["negative"] = f"that {other}"
            rows.append(row)
    name = "triplets" if has_negative else "pairs"
    return lines(f"{name}.jsonl", rows[:12]), lines(f"{name}-judged.jsonl", rows[12:])


def began(program, folder, task, data, targets="query,value"):
    """The initial tensors of an adapter of this program."""
    with tempfile.TemporaryDirectory() as room:
        line = [program, "finetune", OUT / folder, "--task", task, "--data", OUT / data, "--validation", OUT / data]
        line += ["--lora", f"r=4,alpha=8,targets={targets}", "--batch-size", "64", "--lr", "1e-30", "--epochs", "1", "--threads", "1"]
        subprocess.run([*line, "--out", f"{room}/run"], check=True, stdout=subprocess.DEVNULL)
        return load_file(f"{room}/run/adapter/adapter_model.safetensors")


def begin(model, start):
    own = dict(model.named_parameters())
    for name, value in start.items():
        own[name.replace(".weight", ".default.weight") if "lora_" in name else name.replace("classifier.", "classifier.modules_to_save.default.")].data.copy_(value)


def train(parameters, loss, judge):
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    rows = []
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS))
        value = loss()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], 1.0)
        optimizer.step()
        with torch.no_grad():
            judged, score = judge()
        rows.append([value.item(), judged.item(), score.item()])
    return rows


def classify(program, tokenize):
    data, judged = labelled()

    def batch(rows):
        pairs = [(row["text"], row["text_pair"]) if "text_pair" in row else (row["text"],) for row in rows]
        encoded = [tokenize(*pair) for pair in pairs]
        return tokenize.pad(encoded, return_tensors="pt"), torch.tensor([LABELS.index(row["label"]) for row in rows])

    (x, y), (judged_x, judged_y) = batch(data), batch(judged)
    cases = {}
    for kind in ("full", "lora"):
        model = BertForSequenceClassification.from_pretrained(OUT / "classifier", dtype=torch.float32).train()
        if kind == "lora":
            model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", **LORA)).train()
            begin(model, began(program, "classifier", "classify", "labels.jsonl"))

        def judge():
            logits = model(**judged_x).logits
            return torch.nn.functional.cross_entropy(logits, judged_y), (logits.argmax(1) == judged_y).float().mean()

        rows = train(model.parameters(), lambda: model(**x, labels=y).loss, judge)
        with torch.no_grad():
            cases[kind] = {"rows": rows, "logits": model(**judged_x).logits.tolist()}
    return cases


def embed(program):
    cases = {}
    for name, has_negative, kind in (("pairs", False, "full"), ("triplets", True, "full"), ("pairs", False, "lora")):
        data, judged = grouped(has_negative)
        model = SentenceTransformer(str(OUT / "sentences"), device="cpu").train()
        if kind == "lora":
            inner = peft.get_peft_model(model[0].auto_model, peft.LoraConfig(**LORA)).train()
            begin(inner, began(program, "sentences", "embed", "pairs.jsonl"))
        loss = losses.MultipleNegativesRankingLoss(model)

        def texts(rows):
            return [model.preprocess([row[key] for row in rows]) for key in rows[0]]

        def judge():
            features = [dict(part) for part in texts(judged)]
            vectors = [model(part)["sentence_embedding"] for part in [dict(part) for part in texts(judged)]]
            nearest = (vectors[0] @ torch.cat(vectors[1:]).T).argmax(1)
            return loss(features, None), (nearest == torch.arange(len(judged))).float().mean()

        rows = train(model.parameters(), lambda: loss(texts(data), None), judge)
        vectors = model.eval().encode([row["anchor"] for row in judged])
        cases[f"{name}_{kind}"] = {"rows": rows, "vectors": vectors.tolist()}
    return cases


def completions():
    rows = []
    for i in range(6):
        for label in LABELS:
            word = WORDS[label][i]
            # The longest text, so that a step's logits are computed in several parts.
            more = [WORDS[label][at % 6] for at in range(55)] if (i, label) == (0, "animal") else []
            rows.append({"prompt": f"what is {word}", "completion": " ".join(["it is a", label, "of", *more])})
    return lines("completions.jsonl", rows[:12]), lines("completions-judged.jsonl", rows[12:])


def write(program):
    (OUT / "writer").mkdir(exist_ok=True)
    words = ["<end>", "<unk>", *LABELS, *REST, *sum(WORDS.values(), [])]
    tokenize = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    tokenize.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenize.save(str(OUT / "writer/tokenizer.json"))
    torch.manual_seed(1)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"num_key_value_heads": 1, "max_position_embeddings": 64, "initializer_range": 0.3, "tie_word_embeddings": True}
    LlamaForCausalLM(LlamaConfig(**sizes, **more, bos_token_id=0, eos_token_id=0)).save_pretrained(OUT / "writer")
    (OUT / "writer/generation_config.json").unlink(missing_ok=True)
    data, judged = completions()

    def batch(rows):
        pairs = [[tokenize.encode(row[key]).ids for key in ("prompt", "completion")] for row in rows]
        longest = max(len(prompt + completion) + 1 for prompt, completion in pairs)
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        labels = torch.full_like(ids, -100)
        for at, (prompt, completion) in enumerate(pairs):
            whole = torch.tensor([*prompt, *completion, 0])
            ids[at, : len(whole)] = whole
            labels[at, len(prompt) : len(whole)] = whole[len(prompt) :]
        return {"input_ids": ids, "labels": labels}

    learnt, held = batch(data), batch(judged)
    cases = {}
    for kind in ("full", "lora"):
        model = LlamaForCausalLM.from_pretrained(OUT / "writer", dtype=torch.float32).train()
        if kind == "lora":
            own = LORA | {"target_modules": ["q_proj", "v_proj"]}
            model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **own)).train()
            begin(model, began(program, "writer", "text", "completions.jsonl", "q_proj,v_proj"))

        def judge():
            loss = model(**held).loss
            return loss, loss.exp()

        cases[kind] = {"rows": train(model.parameters(), lambda: model(**learnt).loss, judge)}
        trained = [(name.replace(".default", ""), value) for name, value in model.named_parameters() if value.requires_grad]
        cases[kind]["norms"] = {name: value.norm().item() for name, value in trained}
    return cases


def main():
    program = Path(sys.argv[1]).resolve()
    for folder in ("classifier", "sentences"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    tokenize, words = tokenizer(OUT / "classifier")
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    config = BertConfig(vocab_size=words, **SIZES, **STILL, **names)
    BertForSequenceClassification(config).save_pretrained(OUT / "classifier")
    with tempfile.TemporaryDirectory() as room:
        room = Path(room)
        tokenizer(room)
        BertModel(BertConfig(vocab_size=words, **SIZES, **STILL)).save_pretrained(room)
        base = Transformer(str(room))
        base.max_seq_length = 20
        SentenceTransformer(modules=[base, Pooling(SIZES["hidden_size"], "mean"), Normalize()]).save(str(OUT / "sentences"), create_model_card=False)
    cases = {"epochs": EPOCHS, "lr": RATE, "classify": classify(program, tokenize), "embed": embed(program), "write": write(program)}
    (OUT / "cases.json").write_text(json.dumps(cases) + "\n")


main()
