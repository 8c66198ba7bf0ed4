"""Models that learn, held to PyTorch's losses; `scripts/make_fit_cases.py` has recorded them."""

import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import polygrad
from polygrad import Model

CASES = np.load(pathlib.Path(__file__).parent / "cases/fit.npz")
LISTED = {case["name"]: case for case in json.loads(str(CASES["cases"]))}


def made(name, folder):
    """The model of a case with its first weights, and its data."""
    network = LISTED[name]["network"]
    if network is None:
        (folder / "model.onnx").write_bytes(CASES[f"{name}/onnx"].tobytes())
        model = Model.load(folder / "model.onnx")
    else:
        model = getattr(Model, network[0])(**network[1])
        prefix = f"{name}/weights/"
        model.load_state_dict({key.removeprefix(prefix): CASES[key] for key in CASES if key.startswith(prefix)})
    return model, CASES[f"{name}/x"], CASES[f"{name}/y"]


def batches(x, y, size):
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def losses(history):
    return [row["loss"] for row in history.rows if row["split"] == "train"]


def two_moons(count=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=count)
    angle = rng.uniform(0, np.pi, count)
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * np.where(y, -1, 1)[:, None] + np.outer(y, [1, 0.3])
    return x + rng.normal(scale=0.1, size=x.shape), y


@pytest.mark.parametrize("given", ["arrays", "batches"])
@pytest.mark.parametrize("name", LISTED)
def test_losses_are_pytorchs(name, given, tmp_path):
    model, x, y = made(name, tmp_path)
    settings = LISTED[name]["settings"]
    data = (x, y) if given == "arrays" else (batches(x, y, settings["batch_size"]),)
    history = model.fit(*data, shuffle=False, log_every=1, **settings)
    np.testing.assert_allclose(losses(history), CASES[f"{name}/losses"], rtol=2e-4, atol=1e-6)
    (outputs,) = model.run(x).values()
    np.testing.assert_allclose(outputs, CASES[f"{name}/outputs"], rtol=1e-3, atol=1e-4)


def test_moons_are_told_apart():
    x, y = two_moons()
    test = two_moons(seed=1)
    model = Model.mlp(2, 2, hidden=[32, 32])
    before = model.evaluate(*test, metrics=["accuracy"])
    history = model.fit(x, y, epochs=30, learning_rate=0.01, metrics=["accuracy"], validation=test)
    after = model.evaluate(*test, metrics=["accuracy"])
    assert before["accuracy"] < 0.9 < 0.97 < after["accuracy"]
    assert after["loss"] == pytest.approx(history.epochs[-1]["validation_loss"], rel=1e-5)
    assert after["accuracy"] == history.epochs[-1]["validation_accuracy"]
    assert (history.ended, history.steps, len(history.epochs)) == ("done", 30 * 7, 30)
    assert history.best == min(known["validation_loss"] for known in history.epochs)
    assert history.epochs[-1]["epochs"] == 30 and history.epochs[-1]["total_steps"] == 210
    logits = model.run(test[0].astype("float32"))["output"]
    assert (logits.argmax(1) == test[1]).mean() == after["accuracy"]


def test_batches_count_by_their_examples():
    x, y = two_moons(7)
    model = Model.mlp(2, 2)
    whole = model.evaluate(x, y, batch_size=7)
    for uneven in [batches(x, y, 5), batches(x, y, 2), [(x[:1], y[:1]), (x[1:], y[1:])]]:
        assert model.evaluate(uneven)["loss"] == pytest.approx(whole["loss"], rel=1e-6)


class Loader:
    """Begins anew each time."""

    def __init__(self, *batches):
        self.batches, self.begun = batches, 0

    def __iter__(self):
        self.begun += 1
        return iter(self.batches)


def test_whatever_gives_batches(tmp_path):
    x, y = two_moons(12)
    loader = Loader(*batches(x, y, 5))
    Model.mlp(2, 2).fit(loader, epochs=3, validation=loader)
    assert loader.begun == 6
    with pytest.raises(ValueError, match="once, and are needed again"):
        Model.mlp(2, 2).fit((batch for batch in batches(x, y, 5)), epochs=2)
    Model.mlp(2, 2).fit((batch for batch in batches(x, y, 5)), epochs=1)
    with pytest.raises(ValueError, match="no batch"):
        Model.mlp(2, 2).fit([])


def test_loaders_of_pytorch():
    torch = pytest.importorskip("torch")
    x, y = two_moons(20)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    settings = dict(epochs=2, log_every=1)
    found = Model.mlp(2, 2).fit(torch.utils.data.DataLoader(rows, batch_size=8), schedule="linear", **settings)
    expected = Model.mlp(2, 2).fit(x, y, batch_size=8, shuffle=False, schedule="linear", **settings)
    assert losses(found) == pytest.approx(losses(expected), rel=1e-6)


@pytest.mark.parametrize("given", ["arrays", "batches"])
def test_a_run_goes_on_exactly(tmp_path, given):
    x, y = two_moons(50)
    settings = dict(epochs=4, batch_size=8, learning_rate=0.01, log_every=1, metrics=["accuracy"], validation=(x, y))
    data = (x, y) if given == "arrays" else (batches(x, y, 8),)
    whole = Model.mlp(2, 2).fit(*data, **settings, out=tmp_path / "whole")
    stopped = Model.mlp(2, 2).fit(
        *data, **settings, out=tmp_path / "parts", callbacks=[lambda known: known["epoch"] < 2]
    )
    assert (stopped.ended, stopped.steps) == ("stopped", 14)
    model = Model.mlp(2, 2, seed=9)
    rest = model.fit(*data, **settings, out=tmp_path / "parts", resume=True)
    # Those of before come from a file, which has six digits.
    assert losses(rest)[14:] == losses(whole)[14:] and rest.steps == whole.steps == len(losses(rest))
    np.testing.assert_allclose(losses(rest), losses(whole), rtol=1e-5, atol=1e-6)
    for path in ["whole", "parts"]:
        loaded = Model.load(tmp_path / path)
        for name, value in loaded.state_dict().items():
            np.testing.assert_array_equal(value, model.state_dict()[name])
        assert (tmp_path / path / "metrics.csv").exists()
    with pytest.raises(polygrad.Error, match="holds a run already"):
        model.fit(*data, **settings, out=tmp_path / "parts")


def test_an_onnx_file_is_trained_in_a_folder(tmp_path):
    model, x, y = made("file", tmp_path)
    before = model.state_dict()
    assert not any("running" in name for name in before)
    model.fit(x, y, loss="mse", epochs=2, freeze=["conv*"], out=tmp_path / "run")
    after = Model.load(tmp_path / "run")
    ((name, outputs),) = after.run(x).items()
    np.testing.assert_array_equal(outputs, model.run(x)[name])
    same = {name: np.array_equal(before[name], value) for name, value in after.state_dict().items()}
    assert {name.startswith("conv") for name, kept in same.items() if kept} == {True}
    assert not all(same.values())
    # What a run has left is trained on like any file.
    after.fit(x, y, loss="mse")


def test_statistics_are_learnt_where_there_are_some():
    model = Model.resnet(2, layers=[1, 1, 1, 1], width=4, image_size=[16, 16], small_images=True)
    x = np.random.default_rng(0).normal(size=(12, 3, 16, 16)).astype("float32")
    before = model.state_dict()["bn1.running_mean"]
    model.fit(x, np.arange(12) % 2, batch_size=6)
    assert np.abs(model.state_dict()["bn1.running_mean"] - before).max() > 1e-4
    vit = Model.vit(2, image_size=16, patch_size=8, layers=1, heads=2, hidden=8, mlp=16, dropout=0.1)
    history = vit.fit(x, np.arange(12) % 2, epochs=20, learning_rate=0.01)
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


def test_training_stops_early_with_the_best_weights():
    x, y = two_moons(40)
    model = Model.mlp(2, 2)
    history = model.fit(
        x, y, epochs=1000, learning_rate=0.3, optimizer="sgd", momentum=0.9, early_stopping=3, restore_best=True,
        validation=two_moons(40, seed=1),
    )  # fmt: skip
    assert history.ended == "early_stopping" and len(history.epochs) < 1000
    assert model.evaluate(*two_moons(40, seed=1))["loss"] == pytest.approx(history.best, rel=1e-5)


def test_the_same_seed_gives_the_same_model():
    x, y = two_moons(50)

    def fitted(seed, **settings):
        model = Model.mlp(2, 2)
        model.fit(x, y, epochs=2, seed=seed, **settings)
        return model.state_dict()["0.weight"]

    assert (fitted(1) == fitted(1)).all() and (fitted(1) != fitted(2)).any()
    assert (fitted(1, shuffle=False) == fitted(2, shuffle=False)).all()


def test_exceptions_arrive_as_they_are():
    x, y = two_moons(20)
    model = Model.mlp(2, 2)
    before = model.state_dict()["0.weight"]

    def callback(known):
        raise ZeroDivisionError("in the callback")

    def given():
        yield x, y
        raise LookupError("the disk is gone")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        model.fit(x, y, callbacks=[callback])
    with pytest.raises(LookupError, match="the disk is gone"):
        model.fit(given())
    with pytest.raises(LookupError, match="the disk is gone"):
        model.evaluate(given())
    np.testing.assert_array_equal(model.state_dict()["0.weight"], before)


def test_other_threads_go_on():
    x, y = two_moons(2000)
    model, counted, over = Model.mlp(2, 2, hidden=[256, 256]), [0], threading.Event()

    def count():
        while not over.wait(0.001):
            counted[0] += 1
            model.run(np.zeros((1, 2), "float32"))

    thread = threading.Thread(target=count)
    thread.start()
    model.fit(x, y, epochs=3)
    over.set()
    thread.join()
    assert counted[0] > 5


def test_ctrl_c_leaves_a_checkpoint(tmp_path):
    code = textwrap.dedent(f"""
        import numpy, polygrad, signal
        # Where the tests run in the background it is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = polygrad.Model.mlp(2, 2)
        before = model.state_dict()["0.weight"]
        x, y = numpy.random.default_rng(0).normal(size=(100, 2)), numpy.arange(100) % 2
        try:
            model.fit(x, y, epochs=10**9, out={str(tmp_path / "run")!r},
                      callbacks=[lambda known: print("told", flush=True)])
        except KeyboardInterrupt as stopped:
            print("stopped:", stopped, (model.state_dict()["0.weight"] != before).any())
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "stopped: training was stopped, with a checkpoint in" in text and "True" in text and process.returncode == 0
    assert Model.load(tmp_path / "run").run(np.zeros((1, 2), "float32"))["output"].shape == (1, 2)


def test_ctrl_c_is_pythons_own_afterwards():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Model.mlp(2, 2).fit(*two_moons(10))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_progress_is_printed_where_python_prints(capsys):
    Model.mlp(2, 2).fit(*two_moons(10), epochs=2, progress=True, metrics=["accuracy"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "loss" in lines[0] and "accuracy" in lines[1]


def test_inputs_get_the_models_dtype():
    x, y = two_moons(16)
    settings = dict(epochs=2, shuffle=False, log_every=1)
    expected = losses(Model.mlp(2, 2).fit(x.astype("float32"), y, **settings))
    for inputs, targets in [
        (x, y.astype("int32")),
        (np.asfortranarray(x), y.astype(bool)),
        (x.tolist(), y.tolist()),
        ({"input": x}, y.astype("uint8")),
        (polygrad.from_dlpack(x), polygrad.from_dlpack(y)),
    ]:
        assert losses(Model.mlp(2, 2).fit(inputs, targets, **settings)) == pytest.approx(expected, rel=1e-6)
    # Probabilities of the classes are targets, too.
    shares = np.eye(2)[y]
    assert losses(Model.mlp(2, 2).fit(x, shares, **settings)) == pytest.approx(expected, rel=1e-5)


def table(kind):
    x, y = two_moons(30)
    content = {"a": x[:, 0], "b": x[:, 1].astype("float32"), "moon": y}
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(content), (x, y)
    return pytest.importorskip("pyarrow").table(content), (x, y)


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_tables(kind):
    frame, (x, y) = table(kind)
    settings = dict(epochs=2, shuffle=False, log_every=1, batch_size=10)
    expected = losses(Model.mlp(2, 2).fit(x, y, **settings))
    model = Model.mlp(2, 2)
    assert losses(model.fit(frame, "moon", validation=frame, **settings)) == pytest.approx(expected, rel=1e-6)
    assert model.evaluate(frame, "moon")["loss"] == pytest.approx(model.evaluate(x, y)["loss"], rel=1e-6)
    if kind == "arrow":
        found = Model.mlp(2, 2).fit(frame.to_batches(max_chunksize=10), "moon", **settings)
        assert losses(found) == pytest.approx(expected, rel=1e-6)
        reader = frame.to_reader(max_chunksize=10)
        assert losses(Model.mlp(2, 2).fit(reader, "moon", **{**settings, "epochs": 1})) == pytest.approx(expected[:3])
    with pytest.raises(ValueError, match="no column 'sun', but a, b, moon"):
        model.fit(frame, "sun")


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_columns_are_found_by_their_names(kind):
    frame, (x, _) = table(kind)
    turned = frame[["moon", "b", "a"]] if kind == "pandas" else frame.select(["moon", "b", "a"])
    settings = dict(epochs=2, shuffle=False, log_every=1, batch_size=10)
    first, second = Model.mlp(2, 2), Model.mlp(2, 2)
    history = first.fit(frame, "moon", validation=frame, **settings)
    assert second.fit(frame, "moon", validation=turned, **settings).best == history.best
    expected = first.evaluate(frame, "moon")["loss"]
    assert first.evaluate(turned, "moon")["loss"] == copy.deepcopy(first).evaluate(turned, "moon")["loss"] == expected
    inputs = turned[["b", "a"]] if kind == "pandas" else turned.select(["b", "a"])
    for given in (inputs, {"input": inputs}):
        np.testing.assert_array_equal(first.run(given)["output"], first.run(x.astype("float32"))["output"])
    # Further training goes on with them.
    assert losses(first.fit(turned, "moon", **settings)) == losses(second.fit(frame, "moon", **settings))
    with pytest.raises(ValueError, match="the columns are b, and the model has learnt from a, b: give the same"):
        first.evaluate(frame[["b", "moon"]] if kind == "pandas" else frame.select(["b", "moon"]), "moon")


def test_columns_that_are_no_numbers_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": ["x", "y"], "b": [1.0, np.nan], "c": [0, 1]})
    with pytest.raises(ValueError, match="the column 'a' is .*get_dummies"):
        Model.mlp(2, 2).fit(frame, "c")
    with pytest.raises(ValueError, match="the column 'b' has missing"):
        Model.mlp(1, 2).fit(frame[["b", "c"]], "c")
    with pytest.raises(ValueError, match="the column 'd' is object, .*: fill missing values"):
        Model.mlp(1, 2).fit(frame[["c"]].assign(d=pandas.array([True, None], "boolean")), "c")
    with pytest.raises(ValueError, match="two columns are called 'c': rename one of them"):
        Model.mlp(2, 2).fit(pandas.concat([frame[["b", "c"]], frame[["c"]]], axis=1), "b")


def test_columns_without_names_are_numbers():
    pandas = pytest.importorskip("pandas")
    x, y = two_moons(30)
    frame = pandas.DataFrame(np.column_stack([x, y]))
    frame[2] = frame[2].astype(int)
    settings = dict(epochs=2, shuffle=False, log_every=1, batch_size=10)
    expected = losses(Model.mlp(2, 2).fit(x, y, **settings))
    for label in [2, frame.columns[2], np.int64(2)]:
        assert losses(Model.mlp(2, 2).fit(frame, label, **settings)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("cases, error, text", [
    (dict(loss="entropy"), ValueError, "unknown variant `entropy`, expected one of `cross_entropy`"),
    (dict(optimizer="sdg"), ValueError, "unknown variant `sdg`"),
    (dict(metrics=["acuracy"]), ValueError, "unknown variant `acuracy`"),
    (dict(epochs=0), ValueError, "epochs is at least 1"),
    (dict(batch_size=0), ValueError, "batch_size = 0"),
    (dict(learning_rate=-1), ValueError, "lr"),
    (dict(learning_rate="fast"), ValueError, "could not convert|the setting learning_rate is wrong"),
    (dict(epochs=-1), ValueError, "the setting epochs is wrong: invalid value: integer `-1`, expected u64$"),
    (dict(seed=1.5), ValueError, "the setting seed is wrong"),
    (dict(metrics="acuracy"), ValueError, "unknown variant `acuracy`"),
    (dict(early_stopping=2), ValueError, "early_stopping compares evaluations, and there are no data"),
    (dict(restore_best=True), ValueError, "restore_best compares evaluations"),
    (dict(x=np.full((8, 2), "a")), ValueError, "an array of <U1 cannot be read: .*; convert it to one of bool"),
    (dict(y=np.arange(8) % 2 * 1.0), ValueError, "class indices are integers: make the target i64"),
    (dict(y=np.arange(8)[:, None] % 2), ValueError, "squeeze the last axis of the target"),
    (dict(x=np.ma.masked_array(np.zeros((8, 2)), True)), ValueError, r"has a mask, which would be lost; fill"),
    (dict(x=np.full((8, 2), np.nan)), ValueError, "look for NaN and infinity in the data"),
    (dict(x=[(np.zeros((0, 2)), np.zeros(0, int))], y=None), ValueError, "a batch has no examples"),
    (dict(x=[(np.zeros((8, 2)), np.zeros(8, int), 1)], y=None), TypeError, "this is a tuple of length 3"),
    (dict(learning_rate=float("nan")), ValueError, "the setting learning_rate is wrong: a finite number is expected"),
    (dict(freeze="*"), ValueError, "freeze leaves no parameter"),
    (dict(out=3), TypeError, "PathLike object, not int"),
    (dict(momentum=0.9), ValueError, "momentum is an option of sgd"),
    (dict(freeze=["9.weight"]), ValueError, "9.weight"),
    (dict(resume=True), ValueError, "give the folder"),
    (dict(optimizer="sgd", learning_rate=1e30, epochs=3), ValueError, "the loss is (NaN|inf)"),
    (dict(x=np.zeros((8, 3))), ValueError, r"3|features"),
    (dict(x=np.zeros((7, 2))), ValueError, "first extent"),
    (dict(x=np.zeros((0, 2)), y=np.zeros(0, int)), ValueError, "no examples"),
    (dict(x={"other": np.zeros((8, 2))}), ValueError, "the inputs are other, and the model takes input"),
    (dict(y=np.full(8, 2)), ValueError, "2"),
    (dict(x=[(np.zeros((8, 2)), np.zeros(7, int))], y=None), ValueError, "first extent"),
    (dict(x=[np.zeros((8, 2))], y=None), TypeError, "a batch is a tuple"),
    (dict(x=3, y=None), TypeError, "a int gives no batches"),
    (dict(y="moon"), TypeError, "and a ndarray has none"),
    (dict(schedule="cosine", x=(b for b in []), y=None), ValueError, "len\\(\\)"),
])  # fmt: skip
def test_what_cannot_be_trained_is_told(cases, error, text):
    settings = {"x": np.zeros((8, 2)), "y": np.arange(8) % 2, **cases}
    with pytest.raises(error, match=text):
        Model.mlp(2, 2).fit(settings.pop("x"), settings.pop("y"), **settings)


def test_what_cannot_be_built_or_loaded_is_told(tmp_path):
    weights = tmp_path / "weights.safetensors"
    Model.mlp(2, 2).export(weights)
    for build, text in [
        (lambda: Model.mlp(2, 2, activation="step"), "unknown variant `step`"),
        (lambda: Model.mlp(2, -2), "invalid value"),
        (lambda: Model.lenet(2, image_size=[4, 4]), "leaves nothing"),
        (lambda: Model.lenet(2, image_size=[28, 28, 1]), "the setting image_size is wrong: there are more values"),
        (lambda: Model.mlp(2, 2).load_state_dict({"0.weight": np.zeros(2)}), "0.bias"),
        (lambda: Model.load(tmp_path), "run"),
        (lambda: Model.load(weights), "weights alone: make the network"),
    ]:
        with pytest.raises(polygrad.Error, match=text):
            build()
    with pytest.raises(TypeError, match="Model.load, Model.mlp"):
        Model()
