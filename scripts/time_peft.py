"""Times `polygrad finetune` and PEFT in turns: tokens per second of CPU time, peak memory and losses of training an
adapter with one thread.

    pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2 sentence-transformers==6.2.0 safetensors
    cargo build --release -p polygrad-cli --features text
    python3 scripts/time_peft.py target/release/polygrad text    # SmolLM2-135M's shape
    python3 scripts/time_peft.py target/release/polygrad pack    # the same with texts of 16 to 128 tokens, with and without --pack
    python3 scripts/time_peft.py target/release/polygrad embed   # all-MiniLM-L6-v2's shape

Weights are random and so are texts, each of 128 tokens unless stated otherwise: neither changes the cost of a step. CPU
time is measured, since other processes may use the machine. Only the last of three epochs counts, since ours records
steps in the earlier ones. `--rounds N` runs each N times, `--against PROGRAM` takes another build of polygrad in place
of PEFT.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LENGTH, EPOCHS = 128, 3
STEPS = {"text": 2, "pack": 4, "embed": 2}
BATCH = {"text": 8, "pack": 8, "embed": 16}
LORA = {"r": 8, "lora_alpha": 16}
TARGETS = {"text": ["q_proj", "v_proj"], "pack": ["q_proj", "v_proj"], "embed": ["query", "value"]}
RATE = 1e-3


def words_of(folder, count):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenize = Tokenizer(models.WordLevel({f"w{i}": i for i in range(count)}, "w1"))
    tokenize.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenize.save(str(folder / "tokenizer.json"))
    return tokenize


def make(task, folder):
    """Writes a model with random weights in the Hub's or sentence-transformers' format, and examples. Returns the
    examples' number of tokens."""
    import torch

    torch.manual_seed(0)
    if task != "embed":
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
        more = {"num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0}
        ends = {"tie_word_embeddings": True, "initializer_range": 1 / 24, "bos_token_id": 0, "eos_token_id": 0}
        LlamaForCausalLM(LlamaConfig(**sizes, **more, **ends)).save_pretrained(folder / "base")
        words_of(folder / "base", sizes["vocab_size"])
    else:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
        from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

        sizes = {"vocab_size": 30522, "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        plain = folder / "plain"
        plain.mkdir()
        BertModel(BertConfig(**sizes, **still)).save_pretrained(plain)
        tokenize = PreTrainedTokenizerFast(tokenizer_object=words_of(plain, sizes["vocab_size"]), pad_token="w0", model_max_length=512)
        tokenize.save_pretrained(plain)
        base = Transformer(str(plain))
        base.max_seq_length = LENGTH
        parts = [base, Pooling(sizes["hidden_size"], "mean"), Normalize()]
        SentenceTransformer(modules=parts).save(str(folder / "base"), create_model_card=False)
    draw = random.Random(0)
    text = lambda count: " ".join(f"w{draw.randrange(2, sizes['vocab_size'])}" for _ in range(count))
    count = STEPS[task] * BATCH[task]
    lengths = [draw.randint(16, LENGTH) if task == "pack" else LENGTH for _ in range(count)]
    if task == "embed":
        lines = [{"anchor": text(length), "positive": text(length)} for length in lengths]
    else:
        # An end token follows, which the model does not read as input.
        lines = [{"prompt": text(1), "completion": text(length - 1)} for length in lengths]
    rows = [json.dumps(line) + "\n" for line in lines]
    (folder / "lines.jsonl").write_text("".join(rows))
    (folder / "judged.jsonl").write_text("".join(rows[:2]))
    return sum(lengths) * (2 if task == "embed" else 1)


def train_theirs(task, folder):
    """Trains with PEFT, and prints each epoch's loss."""
    import peft
    import torch

    torch.set_num_threads(1)
    rows = [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]
    size = BATCH[task]
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    if task != "embed":
        from tokenizers import Tokenizer
        from transformers import LlamaForCausalLM

        tokenize = Tokenizer.from_file(str(folder / "base/tokenizer.json"))
        tokenize.enable_padding()
        texts = [tokenize.encode_batch([f"{row['prompt']} {row['completion']}" for row in batch]) for batch in batches]
        ids = [torch.tensor([text.ids for text in batch]) for batch in texts]
        seen = [torch.tensor([text.attention_mask for text in batch]) for batch in texts]
        base = LlamaForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=TARGETS[task], **LORA)).train()
        labels = [ids.masked_fill(mask == 0, -100) for ids, mask in zip(ids, seen)]
        given = [{"input_ids": ids, "labels": labels, "attention_mask": mask} for ids, labels, mask in zip(ids, labels, seen)]
        losses = [lambda given=given: model(**given).loss for given in given]
    else:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import losses as known

        model = SentenceTransformer(str(folder / "base"), device="cpu").train()
        peft.get_peft_model(model[0].auto_model, peft.LoraConfig(target_modules=TARGETS[task], **LORA)).train()
        objective = known.MultipleNegativesRankingLoss(model)
        parts = [[model.preprocess([row[key] for row in batch]) for key in ("anchor", "positive")] for batch in batches]
        losses = [lambda parts=parts: objective([dict(part) for part in parts], None) for parts in parts]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    for _ in range(EPOCHS):
        print("epoch", flush=True)
        total = 0.0
        for loss in losses:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            total += value.item()
        print(total / len(losses), flush=True)


def used(process):
    """Seconds of CPU time so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(process, marks, losses):
    """Returns the last epoch's CPU time, peak memory in MB and losses, for a process with these epoch times."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.args
    start, end = marks[-1]
    return end - start, usage.ru_maxrss * 1024 / 1e6, losses


def theirs(task, folder):
    process = subprocess.Popen([sys.executable, __file__, "theirs", task, folder], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    marks, losses = [], []
    for line in process.stdout:
        if line == "epoch\n":
            start = used(process)
        else:
            marks.append((start, used(process)))
            losses.append(float(line))
    return ended(process, marks, losses)


def ours(program, task, folder, *more):
    run = folder / "run"
    goal = "embed" if task == "embed" else "text"
    line = [program, "finetune", folder / "base", "--task", goal, "--data", folder / "lines.jsonl", "--validation", folder / "judged.jsonl", *more]
    lora = f"r={LORA['r']},alpha={LORA['lora_alpha']},targets={','.join(TARGETS[task])}"
    line += ["--lora", lora, "--lr", str(RATE), "--batch-size", str(BATCH[task]), "--epochs", str(EPOCHS), "--threads", "1", "--out", run]
    line += ["--context", str(LENGTH + (task != "embed"))]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    metrics = run / "metrics.csv"
    marks, losses, judged, start = [], [], 0, 0.0
    while len(losses) < EPOCHS:
        time.sleep(0.01)
        rows = metrics.read_text().splitlines() if metrics.exists() else []
        # Only rows at the end of an epoch; each epoch also has earlier rows.
        learnt = [float(row.split(",")[3]) for row in rows if ".0000,train," in row]
        if len(learnt) > len(losses):
            marks.append((start, used(process)))
            losses = learnt
        if sum(",validation," in row for row in rows) > judged:
            judged, start = judged + 1, used(process)
        # The process's times can be read until it is waited for.
        assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None or len(losses) == EPOCHS, line
    found = ended(process, marks, losses)
    subprocess.run(["rm", "-r", run], check=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("task", choices=sorted(BATCH))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    task, program, other = options.task, options.program.resolve(), options.against and options.against.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        tokens = make(task, folder)
        sides = {"polygrad": lambda: ours(program, task, folder)}
        if task == "pack":
            sides = {"polygrad --pack": lambda: ours(program, task, folder, "--pack")} | sides
        sides[str(options.against or "PEFT")] = lambda: ours(other, task, folder) if other else theirs(task, folder)
        found = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, run in sides.items():
                found[name].append(run())
    medians = {name: (statistics.median(tokens / run[0] for run in runs), max(run[1] for run in runs)) for name, runs in found.items()}
    for name, runs in found.items():
        rate, peak = medians[name]
        losses = " ".join(f"{loss:.4f}" for loss in runs[0][2])
        print(f"{name}: {rate:.0f} tokens a second of CPU time, {peak:.0f} MB at most; losses {losses}")
    (rate, peak), *others = medians.values()
    for other_rate, other_peak in others:
        print(f"{rate / other_rate:.2f} times as fast, {peak / other_peak:.2f} of the memory")


if sys.argv[1:2] == ["theirs"]:
    train_theirs(sys.argv[2], Path(sys.argv[3]))
else:
    main()
