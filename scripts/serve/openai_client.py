"""Sends requests to a text generation server with OpenAI's own client, and reports for each whether the client
understands the answer.

    python3 scripts/serve/openai_client.py HOST:PORT
    python3 scripts/serve/openai_client.py --write FOLDER

The server must have the models that the second command writes: FOLDER/writer/1, a small GPT-2 with random weights,
whose tokens are words, and a chat template; and FOLDER/reader/1, a small BERT with files of sentence-transformers.
"""

import asyncio
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

WORDS = "zero one two three four five six seven user assistant :".split()
WIDTH, LAYERS, POSITIONS = 16, 2, 256
TEMPLATE = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant :{% endif %}"
MODEL = "writer"
GREEDY = {"model": MODEL, "temperature": 0}
READER = "reader"


def weights():
    """Weights under GPT-2's names, far enough from 0 that words differ."""
    draw = np.random.default_rng(3)
    shapes = {"wte.weight": [len(WORDS), WIDTH], "wpe.weight": [POSITIONS, WIDTH]}
    for i in range(LAYERS):
        shapes |= {f"h.{i}.attn.c_attn.weight": [WIDTH, 3 * WIDTH], f"h.{i}.attn.c_attn.bias": [3 * WIDTH]}
        shapes |= {f"h.{i}.attn.c_proj.weight": [WIDTH, WIDTH], f"h.{i}.attn.c_proj.bias": [WIDTH]}
        shapes |= {f"h.{i}.mlp.c_fc.weight": [WIDTH, 4 * WIDTH], f"h.{i}.mlp.c_fc.bias": [4 * WIDTH]}
        shapes |= {f"h.{i}.mlp.c_proj.weight": [4 * WIDTH, WIDTH], f"h.{i}.mlp.c_proj.bias": [WIDTH]}
    found = {name: draw.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes.items()}
    for norm in ["ln_f", *(f"h.{i}.ln_{j}" for i in range(LAYERS) for j in (1, 2))]:
        found |= {f"{norm}.weight": np.ones(WIDTH, np.float32), f"{norm}.bias": np.zeros(WIDTH, np.float32)}
    return found


def reader_weights():
    """Weights under BERT's names."""
    draw = np.random.default_rng(4)
    shapes = {"embeddings.word_embeddings": [len(WORDS), WIDTH], "embeddings.position_embeddings": [32, WIDTH]}
    shapes |= {"embeddings.token_type_embeddings": [2, WIDTH], "pooler.dense": [WIDTH, WIDTH]}
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes[f"encoder.layer.0.{part}"] = [WIDTH, WIDTH]
    shapes |= {"encoder.layer.0.intermediate.dense": [2 * WIDTH, WIDTH], "encoder.layer.0.output.dense": [WIDTH, 2 * WIDTH]}
    found = {f"{name}.weight": draw.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes.items()}
    found |= {f"{name}.bias": np.zeros(shape[0], np.float32) for name, shape in shapes.items() if "embeddings" not in name}
    for norm in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        found |= {f"{norm}.LayerNorm.weight": np.ones(WIDTH, np.float32), f"{norm}.LayerNorm.bias": np.zeros(WIDTH, np.float32)}
    return found


def write_reader(folder):
    home = pathlib.Path(folder) / READER / "1"
    (home / "1_Pooling").mkdir(parents=True, exist_ok=True)
    config = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"intermediate_size": 2 * WIDTH, "max_position_embeddings": 32, "architectures": ["BertModel"]}
    (home / "config.json").write_text(json.dumps(config))
    parts = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "1_Pooling"}, {"type": "Normalize", "path": "2_Normalize"}]
    (home / "modules.json").write_text(json.dumps(parts))
    (home / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (home / "tokenizer.json").write_text(json.dumps(tokenizer()))
    save(home / "model.safetensors", reader_weights())


def write(folder):
    """Writes the models in the Hub's folder format, as version 1."""
    write_reader(folder)
    home = pathlib.Path(folder) / MODEL / "1"
    home.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "gpt2", "vocab_size": len(WORDS), "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 2}
    (home / "config.json").write_text(json.dumps({**config, "bos_token_id": 3, "eos_token_id": 1000}))
    (home / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (home / "chat_template.jinja").write_text(TEMPLATE)
    save(home / "model.safetensors", weights())


def finetuned(program, folder):
    """The folder of a run that trains an adapter of the writer, which is in folder/onnx."""
    base, run, lines = folder / "base", folder / "run", folder / "lines.jsonl"
    shutil.copytree(folder / "onnx" / MODEL / "1", base)
    # The end token is no word, and cannot be learnt.
    config = json.loads((base / "config.json").read_text())
    del config["eos_token_id"]
    (base / "config.json").write_text(json.dumps(config))
    lines.write_text(20 * (json.dumps({"prompt": "one two", "completion": " three four"}) + "\n"))
    command = [program, "finetune", base, "--data", lines, "--lora", "r=2,alpha=4,targets=c_attn", "--epochs", "1", "--out", run]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run


def tokenizer():
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    whole = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    return whole | {"post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "zero"}}


def save(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        part = array.tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def lists_models(client):
    names = [model.id for model in client.models.list()]
    assert names == [READER, MODEL], names
    found = client.models.retrieve(MODEL)
    assert (found.id, found.object, found.owned_by) == (MODEL, "model", "polygrad"), found


def completes(client):
    answer = client.completions.create(prompt="one two", max_tokens=8, **GREEDY)
    choice = answer.choices[0]
    assert (answer.object, answer.model, choice.index, choice.finish_reason) == ("text_completion", MODEL, 0, "length"), answer
    assert len(choice.text.split()) == 8 and choice.text.startswith(" "), choice
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 8, 10), usage
    by_ids = client.completions.create(prompt=[1, 2], max_tokens=8, **GREEDY)
    assert by_ids.choices[0].text == choice.text
    both = client.completions.create(prompt=["one two", "five"], max_tokens=8, **GREEDY)
    assert [c.index for c in both.choices] == [0, 1] and both.choices[0].text == choice.text


def streams_completions(client):
    whole = client.completions.create(prompt="four", max_tokens=30, **GREEDY)
    options = {"include_usage": True}
    chunks = list(client.completions.create(prompt="four", max_tokens=30, stream=True, stream_options=options, **GREEDY))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"], chunks
    assert len(chunks) > 10 and chunks[-1].usage == whole.usage, chunks[-1]


def chats(client):
    messages = [{"role": "system", "content": "one"}, {"role": "user", "content": "two"}]
    answer = client.chat.completions.create(messages=messages, max_tokens=6, **GREEDY)
    message = answer.choices[0].message
    assert (answer.object, message.role, answer.choices[0].finish_reason) == ("chat.completion", "assistant", "length"), answer
    # By the template: the same result as for the text that it renders.
    text = client.completions.create(prompt="system : one user : two assistant :", max_tokens=6, **GREEDY)
    assert message.content == text.choices[0].text and answer.usage == text.usage, (answer, text)
    parts = [{"role": "user", "content": [{"type": "text", "text": "two"}]}]
    assert client.chat.completions.create(messages=parts, max_completion_tokens=3, **GREEDY).usage.completion_tokens == 3


def streams_chats(client):
    messages = [{"role": "user", "content": "seven"}]
    whole = client.chat.completions.create(messages=messages, max_tokens=20, **GREEDY)
    stream = client.chat.completions.create(messages=messages, max_tokens=20, stream=True, **GREEDY)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason == "length"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    # The client's own reader of such streams, which requires that they end by themselves.
    text = whole.choices[0].message.content
    word = text.split()[6]
    with client.chat.completions.stream(messages=messages, max_tokens=20, stop=word, **GREEDY) as events:
        final = events.get_final_completion()
    assert final.choices[0].message.content == text[: text.index(word)], final


def stops(client):
    free = client.completions.create(prompt="two", max_tokens=12, **GREEDY).choices[0].text
    word = free.split()[4]
    for stop in (word, ["never", word]):
        found = client.completions.create(prompt="two", max_tokens=12, stop=stop, **GREEDY).choices[0]
        assert found.finish_reason == "stop" and found.text == free[: free.index(word)], (found, free)
    chunks = list(client.completions.create(prompt="two", max_tokens=12, stop=word, stream=True, **GREEDY))
    assert "".join(c.choices[0].text for c in chunks) == free[: free.index(word)]


def draws(client):
    def text(**options):
        return client.completions.create(model=MODEL, prompt="one", max_tokens=24, **options).choices[0].text

    assert text(seed=7, temperature=2) == text(seed=7, temperature=2) != text(seed=8, temperature=2)
    assert len({text(temperature=2) for _ in range(5)}) > 1
    assert text(top_p=1e-9) == text(temperature=0) == text(extra_body={"top_k": 1}) == text(extra_body={"min_p": 1})


def embeds(client):
    """The client asks for Base64 by itself, and decodes it."""
    texts = ["one two", "five", "one two three four"]
    found = client.embeddings.create(model=READER, input=texts)
    assert (found.object, found.model, [v.index for v in found.data]) == ("list", READER, [0, 1, 2]), found
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (7, 7), found.usage
    vectors = np.array([v.embedding for v in found.data])
    assert vectors.shape == (3, WIDTH) and np.allclose((vectors**2).sum(1), 1, atol=1e-5), vectors
    floats = client.embeddings.create(model=READER, input=texts, encoding_format="float")
    assert np.array_equal(np.float32([v.embedding for v in floats.data]), np.float32(vectors))
    for text, vector in zip(texts, vectors):
        alone = client.embeddings.create(model=READER, input=text).data[0].embedding
        assert np.abs(alone - vector).max() < 1e-5


def refuses_vectors(client):
    import openai

    for param, asked in [("input", {"input": []}), ("input", {"input": [[1, 2]]}), ("dimensions", {"dimensions": 3})]:
        try:
            client.embeddings.create(**{"model": READER, "input": "one", **asked})
        except openai.BadRequestError as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"accepted: {asked}")
    try:
        client.embeddings.create(model=MODEL, input="one")
    except openai.NotFoundError as error:
        assert "gives no vectors" in error.message, error
    else:
        raise AssertionError("a model that writes gave vectors")


def refuses(client):
    import openai

    def refused(kind, part, **asked):
        try:
            client.completions.create(**{"model": MODEL, "prompt": "one", "max_tokens": 4, **asked})
        except kind as error:
            assert part in error.message and error.type == "invalid_request_error", error
            return error
        raise AssertionError(f"accepted: {asked}")

    assert refused(openai.NotFoundError, "nobody", model="nobody").code == "model_not_found"
    assert refused(openai.BadRequestError, "temperature", temperature=-1).param == "temperature"
    assert refused(openai.BadRequestError, "n is not offered", n=2).param == "n"
    refused(openai.BadRequestError, "maximum context length", max_tokens=POSITIONS)
    refused(openai.BadRequestError, "maximum context length", max_tokens=POSITIONS, stream=True)


def goes_away(client):
    """A stream that the client leaves halfway frees the model for the next request."""
    stream = client.completions.create(prompt="one", max_tokens=POSITIONS - 1, stream=True, **GREEDY)
    next(iter(stream))
    stream.close()
    began = time.monotonic()
    client.completions.create(prompt="one", max_tokens=1, **GREEDY)
    assert time.monotonic() - began < 10


def waits(client):
    """Several concurrent requests, each with its own answer."""
    import openai

    async def ask(other, word):
        answer = await other.completions.create(prompt=word, max_tokens=10, **GREEDY)
        return answer.choices[0].text

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key="none", max_retries=0) as other:
            return await asyncio.gather(*(ask(other, word) for word in WORDS[:8]))

    together = asyncio.run(all_of_them())
    alone = [client.completions.create(prompt=word, max_tokens=10, **GREEDY).choices[0].text for word in WORDS[:8]]
    assert together == alone


CALLS = [lists_models, embeds, refuses_vectors, completes, streams_completions, chats, streams_chats, stops, draws, refuses, goes_away, waits]


def main(url):
    import openai

    failed = 0
    with openai.OpenAI(base_url=f"http://{url}/v1", api_key="none", max_retries=0) as client:
        for call in CALLS:
            try:
                call(client)
            except Exception as error:  # noqa: BLE001
                failed += 1
                print(f"openai: {call.__name__.replace('_', ' ')}: {type(error).__name__}: {error}", flush=True)
    print(f"openai {openai.__version__}: {len(CALLS) - failed} of {len(CALLS)} calls pass", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(sys.argv[2])
    else:
        main(sys.argv[1])
