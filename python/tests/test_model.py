"""Models, with polygrad's own policies as ONNX files; onnx and onnxruntime judge where they are there."""

import copy
import os
import pickle
import re
import threading

import gymnasium
import numpy as np
import pytest

import polygrad


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "policy.onnx"
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    polygrad.rl.train(envs, total_steps=64, num_steps=8).export_onnx(path)
    return path


def test_a_file_answers_by_name_in_order_and_alone(file):
    model = polygrad.Model.load(file)
    assert (model.input_names, model.output_names) == (["observation"], ["logits", "value"])
    assert model.optional_input_names == [] and "Discrete" in model.metadata["action_space"]
    assert repr(model).startswith("polygrad.Model(observation: float[batch, 4] -> logits")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    for inputs in [{"observation": x}, [x], (x,), x, polygrad.from_dlpack(x), {"observation": np.asfortranarray(x)}]:
        outputs = model.run(inputs)
        assert list(outputs) == ["logits", "value"]
        assert outputs["logits"].shape == (5, 2) and outputs["value"].flags.writeable


def test_onnxruntime_says_the_same(file):
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    theirs = onnxruntime.InferenceSession(file).run(None, {"observation": x})
    for ours, other in zip(polygrad.Model.load(file).run(x).values(), theirs):
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-6)


def test_threads_run_one_model_at_once(file):
    model, results = polygrad.Model.load(file), []
    x = np.ones((64, 4), "float32")
    threads = [threading.Thread(target=lambda: results.append(model.run(x)["value"])) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 8 and all((result == results[0]).all() for result in results)


def test_models_are_copied_and_pickled(file):
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    made = polygrad.Model.mlp(4, 2, hidden=[8])
    made.fit(x, np.arange(5) % 2)
    for model in [polygrad.Model.load(file), made]:
        for other in [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]:
            assert repr(other) == repr(model) and other.metadata == model.metadata
            for name, output in model.run(x).items():
                np.testing.assert_array_equal(other.run(x)[name], output)
    # The copy learns by itself, and as before it was copied.
    other = copy.copy(made)
    other.fit(x, np.arange(5) % 2)
    assert not np.array_equal(other.run(x)["output"], made.run(x)["output"])
    assert other.state_dict().keys() == made.state_dict().keys()


def test_sizes_may_be_numbers_of_numpy():
    model = polygrad.Model.mlp(np.int64(4), np.arange(3).max() + 1, hidden=[np.int32(8)])
    assert model.run(np.zeros((2, 4), "float32"))["output"].shape == (2, 3)


def test_wrong_inputs_are_told(file):
    model = polygrad.Model.load(file)
    x = np.zeros((1, 4), "float32")
    for inputs, error, text in [
        ({}, ValueError, 'the input "observation" is missing.*takes observation'),
        ({"observation": x, "more": x}, ValueError, 'no input "more"'),
        ({1: x}, TypeError, "str"),
        ([x, x], TypeError, "2 inputs, but the model takes 1: observation"),
        (np.zeros((1, 5), "float32"), ValueError, "observation"),
        (np.zeros((1, 4)), ValueError, "f64 was given.*observation"),
        (np.zeros((1, 4), "int8"), ValueError, "no tensors of int8"),
    ]:
        with pytest.raises(error, match=text):
            model.run(inputs)


def test_files_that_are_no_models_are_told(tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model")
    with pytest.raises(polygrad.ArgumentError, match="damaged.onnx"):
        polygrad.Model.load(damaged)
    with pytest.raises(polygrad.Error, match="nowhere.onnx"):
        polygrad.Model.load(tmp_path / "nowhere.onnx")
    with pytest.raises(polygrad.Error, match="run"):
        polygrad.Model.load(tmp_path)


@pytest.mark.skipif("POLYGRAD_RUN" not in os.environ, reason="POLYGRAD_RUN names no folder of `polygrad train`")
def test_a_run_of_the_command_answers():
    model = polygrad.Model.load(os.environ["POLYGRAD_RUN"])
    extents = re.search(r": float\[batch, ([\d, ]+)\] -> ", repr(model))[1].split(", ")
    x = np.random.default_rng(0).normal(size=(3, *map(int, extents))).astype("float32")
    several, alone = model.run(x), model.run(x[1:2])
    assert several.keys() == alone.keys() and len(several) > 0
    for name, output in several.items():
        assert len(output) == 3 and np.isfinite(output).all() and output.std() > 0
        np.testing.assert_allclose(output[1:2], alone[name], rtol=1e-4, atol=1e-5)


def test_a_policy_of_python_is_not_a_model_of_the_command(tmp_path):
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    polygrad.rl.train(envs, total_steps=64, num_steps=8, out=tmp_path / "run")
    with pytest.raises(polygrad.Error, match="polygrad.rl.Policy.load"):
        polygrad.Model.load(tmp_path / "run")
