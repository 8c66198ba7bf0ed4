"""Calls about the server and its models: health, metadata, control, statistics."""

import time

import numpy as np
from clients import everyone as world  # noqa: F401
from registry import call, refused

SYNC = ["binary", "grpc"]
ALL = ["binary", "http.aio", "grpc", "grpc.aio"]
X = {"x": np.float32([[1, 2, 3]])}


@call(*ALL)
def server_is_live(world, name):
    assert world[name].do("is_server_live") is True


@call(*ALL)
def server_is_ready(world, name):
    assert world[name].do("is_server_ready") is True


@call(*ALL)
def model_is_ready(world, name):
    assert world[name].do("is_model_ready", "identity_fp32") is True


@call(*SYNC)
def version_is_ready(world, name):
    for version in ("1", "2"):
        assert world[name].do("is_model_ready", "scaled", version) is True


@call(*ALL)
def unknown_model_is_not_ready(world, name):
    # Some servers answer and some refuse, but none reports it as ready.
    try:
        assert world[name].do("is_model_ready", "no_such_model") is False
    except Exception as error:  # noqa: BLE001
        refused(lambda: (_ for _ in ()).throw(error))


@call(*SYNC)
def unknown_version_is_not_ready(world, name):
    try:
        assert world[name].do("is_model_ready", "scaled", "77") is False
    except Exception as error:  # noqa: BLE001
        refused(lambda: (_ for _ in ()).throw(error))


@call(*ALL)
def server_metadata(world, name):
    got = world[name].read("get_server_metadata")
    assert got["name"] and got["version"], got


@call(*SYNC)
def server_metadata_names_extensions(world, name):
    extensions = world[name].read("get_server_metadata").get("extensions", [])
    for wanted in ("model_repository", "statistics", "binary_tensor_data"):
        assert wanted in extensions, extensions


def extents(tensor):
    """gRPC's JSON has 64-bit numbers as text."""
    return [int(extent) for extent in tensor["shape"]]


@call(*ALL)
def model_metadata(world, name):
    got = world[name].read("get_model_metadata", "row_sum")
    assert got["name"] == "row_sum", got
    (given,), (made,) = got["inputs"], got["outputs"]
    assert (given["name"], given["datatype"], extents(given)) == ("x", "FP32", [-1, 4]), given
    assert (made["name"], made["datatype"], extents(made)) == ("y", "FP32", [-1, 1]), made


@call(*SYNC)
def metadata_of_several_inputs_and_outputs(world, name):
    got = world[name].read("get_model_metadata", "add_sub")
    assert [tensor["name"] for tensor in got["inputs"]] == ["a", "b"], got
    assert [tensor["name"] for tensor in got["outputs"]] == ["sum", "difference"], got
    assert {tensor["datatype"] for tensor in got["inputs"] + got["outputs"]} == {"INT32"}, got


@call(*SYNC)
def metadata_names_versions(world, name):
    got = world[name].read("get_model_metadata", "scaled")
    assert set(got["versions"]) == {"1", "2"}, got


@call(*SYNC)
def metadata_of_a_version(world, name):
    got = world[name].read("get_model_metadata", "scaled", "1")
    assert got["name"] == "scaled" and got["inputs"][0]["name"] == "x", got


@call(*SYNC)
def metadata_of_an_unknown_model(world, name):
    refused(lambda: world[name].read("get_model_metadata", "no_such_model"), "no_such_model", "unknown", "not found")


@call(*SYNC)
def metadata_of_an_unknown_version(world, name):
    refused(lambda: world[name].read("get_model_metadata", "scaled", "77"), "77", "version")


@call(*SYNC)
def metadata_of_dtypes(world, name):
    for kind in ("BOOL", "UINT8", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64"):
        got = world[name].read("get_model_metadata", f"identity_{kind.lower()}")
        assert got["inputs"][0]["datatype"] == got["outputs"][0]["datatype"] == kind, got


@call(*ALL)
def model_config(world, name):
    got = world[name].read("get_model_config", "add_sub")
    got = got.get("config", got)
    assert got["name"] == "add_sub" and [tensor["name"] for tensor in got["input"]] == ["a", "b"], got
    assert [tensor["data_type"] for tensor in got["output"]] == ["TYPE_INT32"] * 2, got


@call(*SYNC)
def config_of_an_unknown_model(world, name):
    refused(lambda: world[name].read("get_model_config", "no_such_model"))


def index(world, name):
    got = world[name].read("get_model_repository_index")
    return got if isinstance(got, list) else got["models"]


@call(*ALL)
def repository_index(world, name):
    names = {entry["name"] for entry in index(world, name)}
    assert {"identity_fp32", "add_sub", "scaled", "accumulate"} <= names, names


@call(*SYNC)
def index_has_versions_and_states(world, name):
    scaled = [entry for entry in index(world, name) if entry["name"] == "scaled"]
    assert {entry["version"] for entry in scaled} == {"1", "2"}, scaled
    assert {entry["state"] for entry in scaled} == {"READY"}, scaled


def wait(condition):
    """Some servers answer before they have finished."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@call(*ALL)
def unload_and_load(world, name):
    client = world[name]
    if not ready(world, name, "row_sum"):
        # An earlier call has failed.
        client.do("load_model", "row_sum")
    try:
        client.do("unload_model", "row_sum")
        wait(lambda: not ready(world, name, "row_sum"))
        refused(lambda: client.infer("row_sum", {"x": np.ones((1, 4), np.float32)}))
        assert ready(world, name, "add_sub"), "another one went with it"
    finally:
        client.do("load_model", "row_sum")
    wait(lambda: ready(world, name, "row_sum"))
    got, _ = client.infer("row_sum", {"x": np.ones((1, 4), np.float32)})
    assert got["y"].tolist() == [[4.0]], got


def ready(world, name, model):
    try:
        return world[name].do("is_model_ready", model)
    except Exception:  # noqa: BLE001
        return False


@call(*SYNC)
def load_again(world, name):
    world[name].do("load_model", "row_sum")
    wait(lambda: ready(world, name, "row_sum"))
    got, _ = world[name].infer("row_sum", {"x": np.ones((2, 4), np.float32)})
    assert got["y"].tolist() == [[4.0], [4.0]], got


@call(*SYNC)
def index_shows_what_is_unloaded(world, name):
    try:
        world[name].do("unload_model", "row_sum")
        wait(lambda: not ready(world, name, "row_sum"))
        states = [entry.get("state") for entry in index(world, name) if entry["name"] == "row_sum"]
        assert states and "READY" not in states, states
    finally:
        world[name].do("load_model", "row_sum")
        wait(lambda: ready(world, name, "row_sum"))


@call(*SYNC)
def load_an_unknown_model(world, name):
    refused(lambda: world[name].do("load_model", "no_such_model"), "no_such_model", "not found", "failed to load")


@call(*SYNC)
def unload_an_unknown_model(world, name):
    # Triton treats it as done.
    try:
        world[name].do("unload_model", "no_such_model")
    except Exception as error:  # noqa: BLE001
        refused(lambda: (_ for _ in ()).throw(error))
    assert ready(world, name, "identity_fp32")


def statistics(world, name, model, version=""):
    (found,) = world[name].read("get_inference_statistics", model, version)["model_stats"]
    return found


@call(*ALL)
def statistics_of_a_model(world, name):
    found = statistics(world, name, "add_sub")
    assert found["name"] == "add_sub" and found["version"], found
    for part in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        assert part in found["inference_stats"], found


@call(*SYNC)
def statistics_count_requests_and_rows(world, name):
    def count():
        found = statistics(world, name, "identity_fp32")
        success = found["inference_stats"]["success"]
        return int(success.get("count", 0)), int(found.get("inference_count", 0))

    requests, rows = count()
    for _ in range(3):
        world[name].infer("identity_fp32", {"x": np.ones((2, 3), np.float32)})
    after = count()
    assert (after[0] - requests, after[1] - rows) == (3, 6), ((requests, rows), after)


@call(*SYNC)
def statistics_of_all_models(world, name):
    found = {entry["name"] for entry in world[name].read("get_inference_statistics")["model_stats"]}
    assert {"identity_fp32", "add_sub", "scaled"} <= found, found


@call(*SYNC)
def statistics_of_a_version(world, name):
    assert statistics(world, name, "scaled", "1")["version"] == "1"


@call(*SYNC)
def statistics_of_an_unknown_model(world, name):
    refused(lambda: world[name].read("get_inference_statistics", "no_such_model"))
