"""What is done with models: files, 8 bits, service."""

import json
import socket
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

import polygrad
from polygrad import Model


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = Model.mlp(6, 2, hidden=[32, 32])
    model.fit(x, y, epochs=20, learning_rate=0.01)
    return model, x, y


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.loads(answer.read() or "null")


def infer(server, x):
    given = {"name": "input", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    return ask(f"{server.url}/v2/models/{server.name}/infer", {"inputs": [given]})["outputs"][0]["data"]


def test_exported_files_are_the_model(trained, tmp_path):
    model, x, _ = trained
    model.export(tmp_path / "model.onnx")
    expected = model.run(x)["output"]
    np.testing.assert_array_equal(Model.load(tmp_path / "model.onnx").run(x)["output"], expected)
    model.export(tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"} == {
        name: list(value.shape) for name, value in model.state_dict().items()
    }
    with pytest.raises(polygrad.ArgumentError, match="says no form by its ending"):
        model.export(tmp_path / "model.pt")


def test_onnxruntime_runs_exported_files(trained, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, x, _ = trained
    for name, made in [("plain", model), ("bytes", model.quantize(x[:200]).model)]:
        made.export(tmp_path / f"{name}.onnx")
        session = runtime.InferenceSession(tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"input": x})[0], made.run(x)["output"], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("settings", [
    dict(), dict(int8="dynamic"), dict(per_channel=True, calibration="mse"),
    dict(calibration="percentile", percentile=99.9),
])  # fmt: skip
def test_eight_bits_keep_what_was_learnt(trained, settings):
    model, x, y = trained
    quantized = model.quantize(x[:200], **settings)
    kept = [layer["snr"] > 15 and layer["left_out"] is None for layer in quantized.layers]
    assert kept == [True] * 3
    before, after = (made.evaluate(x, y, metrics=["accuracy"]) for made in (model, quantized.model))
    assert after["loss"] != before["loss"] and after["accuracy"] > before["accuracy"] - 0.03
    assert "3 of 3 layers" in repr(quantized)
    with pytest.raises(polygrad.Error, match="in 8 bits"):
        quantized.model.fit(x, y)


def test_layers_may_stay_as_they_are(trained):
    model, x, _ = trained
    first = model.quantize(x).layers[0]["name"]
    layers = model.quantize(x, skip=[first]).layers
    assert [layer["left_out"] for layer in layers] == ["its name", None, None]
    for settings, text in [
        (dict(), "no batches"),
        (dict(x=x, skip=["conv*"]), "no layer to be quantized is called"),
        (dict(x=x, min_snr=1000), "every layer is left out"),
        (dict(x=x, int8="int4"), "unknown variant `int4`"),
        (dict(x=x, percentile=99), "percentile is for"),
        (dict(x=x, calibration="percentile", percentile=10), "no percentile"),
    ]:
        with pytest.raises(polygrad.ArgumentError, match=text):
            model.quantize(**settings)


def test_a_server_answers_until_it_is_stopped(trained):
    model, x, _ = trained
    server = model.serve()
    assert repr(server).endswith(", answers)") and server.name == "model"
    np.testing.assert_allclose(infer(server, x[:5]), model.run(x[:5])["output"].ravel(), rtol=1e-5)
    # From several threads at once.
    threads = [threading.Thread(target=infer, args=(server, x[:2])) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    server.stop()
    server.stop()
    assert repr(server).endswith(", was stopped)")
    with pytest.raises(urllib.error.URLError):
        ask(f"{server.url}/v2")


def test_a_block_ends_its_server(trained):
    model, x, _ = trained
    with pytest.raises(LookupError, match="inside"), model.serve(name="moons", threads=1) as server:
        assert ask(f"{server.url}/v2/models/moons")["name"] == "moons"
        with model.serve() as other:
            assert other.url != server.url
        raise LookupError("inside")
    with pytest.raises(urllib.error.URLError):
        ask(f"{server.url}/v2")


def test_a_server_has_the_weights_of_its_beginning():
    x, y = np.random.default_rng(0).normal(size=(64, 3)).astype("float32"), np.arange(64) % 2
    model = Model.mlp(3, 2)
    before = model.run(x[:1])["output"].ravel()
    with model.serve() as server:
        model.fit(x, y)
        np.testing.assert_allclose(infer(server, x[:1]), before, rtol=1e-5)


def test_what_cannot_be_served_is_told(trained):
    model, _, _ = trained
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for settings, text in [
            (dict(port=taken.getsockname()[1]), "choose another port"),
            (dict(host="here"), "no IP address"),
            (dict(name="a/b"), "a/b"),
        ]:
            with pytest.raises(polygrad.Error, match=text):
                model.serve(**settings)
