"""Models of texts, from folders as the Hub has them."""

import json
import os
import pathlib
import shutil
import signal
import threading
import time
import urllib.request

import numpy as np
import pytest

import polygrad
from polygrad import Model

FOLDERS = pathlib.Path(__file__).parents[2] / "crates/cli/tests/data/finetune"
WORDS = "<end> zero one two three four five six seven eight nine user : answer".split()


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    data = b"".join(value.tobytes() for value in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(scope="session")
def counting(tmp_path_factory):
    """A Llama that counts: attention and the layer behind it give nothing, and behind each word the next is likely."""
    folder, size = tmp_path_factory.mktemp("models") / "counting", len(WORDS)
    folder.mkdir()
    eye, zero, ones = np.eye(size, dtype="float32"), np.zeros((size, size), "float32"), np.ones(size, "float32")
    layer = {f"self_attn.{name}_proj": zero for name in "qkvo"} | {
        f"mlp.{name}_proj": zero for name in ["gate", "up", "down"]
    }
    layer |= {"input_layernorm": ones, "post_attention_layernorm": ones}
    tensors = {"model.embed_tokens.weight": eye, "model.norm.weight": ones}
    tensors |= {f"model.layers.0.{name}.weight": value for name, value in layer.items()}
    # Behind "nine" comes the end.
    following = np.roll(eye, 1, axis=0)
    following[0], following[WORDS.index("nine") + 1] = eye[WORDS.index("nine")], 0
    tensors["lm_head.weight"] = np.ascontiguousarray(following)
    write_safetensors(folder / "model.safetensors", tensors)
    config = dict(
        model_type="llama", vocab_size=size, hidden_size=size, intermediate_size=size, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False,
        eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    special = dict(id=0, content="<end>", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=[special], normalizer=None,
        pre_tokenizer={"type": "Whitespace"}, post_processor=None, decoder=None,
        model=dict(type="WordLevel", vocab={word: i for i, word in enumerate(WORDS)}, unk_token="<end>"),
    )  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


def test_a_language_model_writes_what_is_likely(counting):
    model = Model.load(counting)
    assert model.generate("two").split() == "three four five six seven eight nine".split()
    assert model.generate("two", max_tokens=3).split() == ["three", "four", "five"]
    assert model.generate("one two", stop="six").split() == ["three", "four", "five"]
    assert model.generate([{"role": "user", "content": "six"}]).split() == ["seven", "eight", "nine"]
    assert model.run(["two"])["text"][0].split() == "three four five six seven eight nine".split()
    assert "text" in repr(model) and model.input_names == ["text"]
    assert model.optional_input_names == ["max_tokens", "temperature"]
    shorter = model.run({"text": ["two", "four"], "max_tokens": np.full(2, 1, "int32")})["text"]
    assert [text.strip() for text in shorter] == ["three", "five"]


def test_pieces_come_as_they_are_written(counting):
    model, pieces = Model.load(counting), []
    whole = model.generate("two", stream=pieces.append)
    assert len(pieces) == 7 and "".join(pieces) == whole
    pieces.clear()
    assert model.generate("two", stream=lambda piece: pieces.append(piece) or len(pieces) < 2) == "".join(pieces)
    assert len(pieces) == 2

    def fail(piece):
        raise LookupError("the line is cut")

    with pytest.raises(LookupError, match="the line is cut"):
        model.generate("two", stream=fail)


def test_ctrl_c_ends_the_reading_of_a_long_prompt(counting, tmp_path):
    folder = tmp_path / "long"
    shutil.copytree(counting, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1_000_000}))
    model, prompt = Model.load(folder), "two " * 100_000
    begun = time.process_time()
    interrupt = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        model.generate(prompt, max_tokens=1)
    interrupt.join()
    # The whole prompt takes minutes.
    assert time.process_time() - begun < 10
    assert model.generate("two", max_tokens=1) == model.generate("two", max_tokens=1)

    vectors, texts = Model.load(FOLDERS / "sentences"), ["what is five"] * 1_000_000
    begun = time.process_time()
    interrupt = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        vectors.embed(texts)
    interrupt.join()
    assert time.process_time() - begun < 10


def test_chance_follows_its_seed(counting):
    model = Model.load(counting)
    drawn = [model.generate("two", temperature=5.0, seed=seed) for seed in (1, 1, 2, 3, 4, 5)]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1


def test_vectors_of_texts():
    model = Model.load(FOLDERS / "sentences")
    texts = ["what is five", "five is the name of a one", "that white", "the cat"] * 10
    vectors = model.embed(texts)
    assert vectors.shape == (40, 16) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    # Neither the texts beside it nor the size of batches change a vector.
    np.testing.assert_allclose(model.embed(texts, batch_size=3), vectors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.embed(texts[:1]), vectors[:1], rtol=1e-4, atol=1e-5)
    assert model.embed([]).shape[0] == 0
    with model.serve() as server:
        body = json.dumps({"model": "model", "input": texts[:2]}).encode()
        request = urllib.request.Request(f"{server.url}/v1/embeddings", body, {"Content-Type": "application/json"})
        found = json.loads(urllib.request.urlopen(request, timeout=30).read())["data"]
    np.testing.assert_allclose([entry["embedding"] for entry in found], vectors[:2], rtol=1e-4, atol=1e-5)


def test_transformers_gives_the_same_vectors():
    # Its own, of the same file, computed with PyTorch alone.
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    folder = FOLDERS / "sentences"
    config = json.loads((folder / "config.json").read_text())
    state = {
        name.removeprefix("bert."): value for name, value in safetensors.load_file(folder / "model.safetensors").items()
    }
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ids = torch.tensor([vocab[word] for word in "[CLS] what is five [SEP]".split()])
    norm = lambda x, name: torch.nn.functional.layer_norm(
        x, x.shape[-1:], state[f"{name}.LayerNorm.weight"], state[f"{name}.LayerNorm.bias"], config["layer_norm_eps"]
    )
    linear = lambda x, name: torch.nn.functional.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])
    x = state["embeddings.word_embeddings.weight"][ids] + state["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + state["embeddings.token_type_embeddings.weight"][0], "embeddings")
    heads = config["num_attention_heads"]
    split = lambda x: x.reshape(len(ids), heads, -1).transpose(0, 1)[None]
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (split(linear(x, f"{at}.attention.self.{name}")) for name in ["query", "key", "value"])
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).reshape(len(ids), -1)
        x = norm(x + linear(seen, f"{at}.attention.output.dense"), f"{at}.attention.output")
        inner = torch.nn.functional.gelu(linear(x, f"{at}.intermediate.dense"))
        x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output")
    expected = torch.nn.functional.normalize(x.mean(0), dim=0)
    np.testing.assert_allclose(Model.load(folder).embed(["what is five"])[0], expected, rtol=1e-3, atol=1e-5)


def test_what_was_tuned_is_merged(tmp_path):
    run = os.environ.get("POLYGRAD_TUNED")
    if run is None:
        pytest.skip("POLYGRAD_TUNED names no run of `polygrad finetune` on crates/cli/tests/data/finetune/sentences")
    polygrad.merge(run, tmp_path / "merged")
    merged = Model.load(tmp_path / "merged").embed(["what is five"])
    assert (
        merged.shape == (1, 16)
        and np.abs(merged - Model.load(FOLDERS / "sentences").embed(["what is five"])).max() > 1e-3
    )
    with pytest.raises(polygrad.Error, match="is there already"):
        polygrad.merge(run, tmp_path / "merged")


def test_what_a_model_cannot_do_is_told(counting, tmp_path):
    writes, reads = Model.load(counting), Model.load(FOLDERS / "sentences")
    numbers = Model.mlp(2, 2)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    (tmp_path / "file").write_text("")
    for act, error, text in [
        (lambda: writes.embed(["a"]), polygrad.Error, "no vectors of texts"),
        (lambda: reads.generate("a"), polygrad.Error, "writes no texts"),
        (lambda: numbers.embed(["a"]), polygrad.Error, "for models of texts"),
        (lambda: numbers.generate("a"), polygrad.Error, "for models of texts"),
        (lambda: reads.embed("a"), TypeError, r"give \[text\]"),
        (lambda: reads.fit(["a"], [0]), polygrad.Error, "does not learn here"),
        (lambda: reads.export(tmp_path / "model.onnx"), polygrad.Error, "does not learn here"),
        (lambda: reads.run({"texts": ["a"]}), ValueError, 'no input "texts"'),
        (lambda: writes.generate("two", temperature=-1), ValueError, "temperature"),
        (lambda: writes.generate([{"role": "user"}] * 40), ValueError, "tokens|positions"),
        (lambda: Model.load(tmp_path), polygrad.Error, "mamba"),
        (lambda: polygrad.merge(tmp_path, tmp_path / "out"), polygrad.Error, "would lie among the files of the run"),
    ]:
        with pytest.raises(error, match=text):
            act()
