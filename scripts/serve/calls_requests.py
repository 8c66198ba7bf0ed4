"""Inference calls: dtypes, several inputs and outputs, other fields of the answer, sequences, and refusals."""

import asyncio
import itertools
import queue

import ml_dtypes
import numpy as np
from clients import DTYPES
from clients import everyone as world  # noqa: F401
from registry import call, refused

ALL = ["json", "binary", "http.aio", "grpc", "grpc.aio"]
SYNC = ["json", "binary", "grpc"]
HTTP = ["json", "binary", "http.aio"]
SEQUENCES = itertools.count(1000)


def numbers(kind, rows=3, columns=5, seed=1):
    """Values that are exact in a dtype, including its extremes."""
    kind, random = np.dtype(DTYPES[kind]), np.random.default_rng(seed)
    if kind == np.bool_:
        return random.integers(0, 2, (rows, columns)).astype(kind)
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        made = random.integers(bounds.min, bounds.max, (rows, columns), kind, endpoint=True)
        made[0, :2] = bounds.min, bounds.max
        return made
    made = random.standard_normal((rows, columns)).astype(kind)
    made[0, :3] = np.finfo(kind).max, np.finfo(kind).tiny, -0.0
    return made


def same(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape, expected.shape)
    assert got.tobytes() == expected.tobytes(), (got, expected)


KINDS = [(client, kind) for client in ALL for kind in DTYPES if (client, kind) != ("json", "FP16")]


@call(*KINDS)
def values_of(world, name, kind):
    x = numbers(kind)
    got, answer = world[name].infer(f"identity_{kind.lower()}", {"x": x}, ["y"])
    assert answer["outputs"][0]["datatype"] == kind, answer
    same(got["y"], x)


@call("binary", "grpc")
def bfloat16(world, name):
    x = np.array([[1.5, -2.0, -0.0, 3.0e38, 1e-30]], ml_dtypes.bfloat16)
    got, answer = world[name].infer("identity_bf16", {"x": x}, ["y"], kind="BF16")
    assert answer["outputs"][0]["datatype"] == "BF16", answer
    # The clients return it as float32 or unchanged.
    same(got["y"].astype(ml_dtypes.bfloat16), x)


@call("binary", "grpc")
def infinities_and_nan(world, name):
    x = np.float32([[np.inf, -np.inf, np.nan]])
    same(world[name].infer("identity_fp32", {"x": x})[0]["y"], x)


def add_sub(world, name, rows=2, seed=3, **options):
    a, b = np.random.default_rng(seed).integers(-99, 99, (2, rows, 4), np.int32)
    got, answer = world[name].infer("add_sub", {"a": a, "b": b}, **options)
    return a + b, a - b, got, answer


@call(*ALL)
def several_inputs_and_outputs(world, name):
    total, difference, got, _ = add_sub(world, name, outputs=["sum", "difference"])
    same(got["sum"], total)
    same(got["difference"], difference)


@call(*ALL)
def all_outputs_without_asking(world, name):
    total, difference, got, answer = add_sub(world, name)
    assert [output["name"] for output in answer["outputs"]] == ["sum", "difference"], answer
    same(got["sum"], total)
    same(got["difference"], difference)


@call(*ALL)
def one_output_chosen(world, name):
    _, difference, got, _ = add_sub(world, name, outputs=["difference"])
    assert list(got) == ["difference"], got
    same(got["difference"], difference)


@call(*SYNC)
def outputs_in_the_order_asked_for(world, name):
    total, difference, got, _ = add_sub(world, name, outputs=["difference", "sum"])
    assert set(got) == {"sum", "difference"}, got
    same(got["sum"], total)
    same(got["difference"], difference)


@call(*SYNC)
def inputs_in_another_order(world, name):
    a, b = np.int32([[5, 6]]), np.int32([[1, 2]])
    got, _ = world[name].infer("add_sub", {"b": b, "a": a})
    assert got["difference"].tolist() == [[4, 4]], got


@call(*ALL)
def the_id_comes_back(world, name):
    _, answer = world[name].infer("identity_fp32", {"x": np.ones((1, 1), np.float32)}, request_id="my-id-42")
    assert answer["id"] == "my-id-42", answer


@call(*ALL)
def the_answer_names_model_and_version(world, name):
    _, answer = world[name].infer("scaled", {"x": np.ones((1, 1), np.float32)}, model_version="1")
    assert (answer["model_name"], answer["model_version"]) == ("scaled", "1"), answer


@call(*ALL)
def the_newest_version_by_default(world, name):
    got, answer = world[name].infer("scaled", {"x": np.float32([[3]])})
    assert got["y"].tolist() == [[6.0]] and answer["model_version"] == "2", answer


@call(*SYNC)
def a_version_chosen(world, name):
    for version, y in (("1", 3.0), ("2", 6.0)):
        got, _ = world[name].infer("scaled", {"x": np.float32([[3]])}, model_version=version)
        assert got["y"].tolist() == [[y]], got


@call(*SYNC)
def parameters_of_the_request(world, name):
    options = {"note": "x", "count": 3, "on": True}
    got, _ = world[name].infer("identity_fp32", {"x": np.float32([[1, 2]])}, parameters=options)
    assert got["y"].tolist() == [[1.0, 2.0]], got


@call(*SYNC)
def a_priority_and_a_timeout(world, name):
    got, _ = world[name].infer("identity_fp32", {"x": np.float32([[1, 2]])}, priority=1, timeout=5_000_000)
    assert got["y"].tolist() == [[1.0, 2.0]], got


@call("grpc", "grpc.aio")
def a_deadline_of_the_client(world, name):
    got, _ = world[name].infer("identity_fp32", {"x": np.float32([[1, 2]])}, client_timeout=10.0)
    assert got["y"].tolist() == [[1.0, 2.0]], got


@call(*SYNC)
def batches_of_other_sizes(world, name):
    for rows in (1, 2, 7, 8):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        got, _ = world[name].infer("row_sum", {"x": x})
        same(got["y"], x.sum(1, keepdims=True))


@call("binary", "grpc")
def four_megabytes(world, name):
    x = np.random.default_rng(5).standard_normal((1, 1_100_000)).astype(np.float32)
    same(world[name].infer("identity_fp32", {"x": x})[0]["y"], x)


@call("binary", "json")
def binary_in_or_out_alone(world, name):
    client, x = world[name], numbers("FP32")
    kept, client.binary = client.binary, {"binary_in": name == "binary", "binary_out": name == "json"}
    try:
        got, _ = client.infer("identity_fp32", {"x": x}, ["y"])
    finally:
        client.binary = kept
    np.testing.assert_allclose(got["y"], x, rtol=1e-6)


@call(*[(name, how) for name in ("binary", "json", "http.aio") for how in ("gzip", "deflate")])
def compressed_request(world, name, how):
    x = numbers("INT32", 4, 100)
    same(world[name].infer("identity_int32", {"x": x}, ["y"], request_compression_algorithm=how)[0]["y"], x)


@call(*[(name, how) for name in ("binary", "json", "http.aio") for how in ("gzip", "deflate")])
def compressed_answer(world, name, how):
    x = numbers("INT32", 4, 100)
    same(world[name].infer("identity_int32", {"x": x}, ["y"], response_compression_algorithm=how)[0]["y"], x)


@call(*[(name, how) for name in ("grpc", "grpc.aio") for how in ("gzip", "deflate")])
def compressed_message(world, name, how):
    x = numbers("INT32", 4, 100)
    same(world[name].infer("identity_int32", {"x": x}, compression_algorithm=how)[0]["y"], x)


@call("binary")
def eight_at_once_by_async_infer(world, name):
    client = world[name]
    pending = []
    for i in range(8):
        given, _ = client.request({"x": np.full((1, 3), i, np.float32)}, None)
        pending.append(client.client.async_infer("identity_fp32", given, request_id=str(i)))
    for i, one in enumerate(pending):
        result = one.get_result()
        assert result.get_response()["id"] == str(i) and (result.as_numpy("y") == i).all()


@call("grpc")
def eight_at_once_with_callbacks(world, name):
    client, done = world[name], queue.Queue()
    for i in range(8):
        given, _ = client.request({"x": np.full((1, 3), i, np.float32)}, None)
        client.client.async_infer("identity_fp32", given, lambda result, error, i=i: done.put((i, result, error)))
    for _ in range(8):
        i, result, error = done.get(timeout=10)
        assert error is None and (result.as_numpy("y") == i).all(), (i, error)


@call("http.aio", "grpc.aio")
def thirty_two_at_once(world, name):
    client = world[name]

    async def one(i):
        given, _ = client.request({"x": np.full((1 + i % 3, 4), i, np.float32)}, None)
        result = await client.client.infer("row_sum", given)
        assert result.as_numpy("y").tolist() == [[4.0 * i]] * (1 + i % 3), i

    async def all_of_them():
        await asyncio.gather(*(one(i) for i in range(32)))

    client.loop.run_until_complete(all_of_them())


def step(world, name, sequence, x, **options):
    got, _ = world[name].infer("accumulate", {"x": np.float32([[x]])}, ["y"], sequence_id=sequence, **options)
    return got["y"].item()


@call(*ALL)
def a_sequence(world, name):
    sequence = next(SEQUENCES)
    sums = [step(world, name, sequence, x, sequence_start=x == 1, sequence_end=x == 4) for x in (1, 2, 3, 4)]
    assert sums == [1.0, 3.0, 6.0, 10.0], sums


@call(*SYNC)
def two_sequences_in_turns(world, name):
    one, other = next(SEQUENCES), next(SEQUENCES)
    sums = []
    for x in range(1, 5):
        first, last = x == 1, x == 4
        sums.append(step(world, name, one, x, sequence_start=first, sequence_end=last))
        sums.append(step(world, name, other, 10 * x, sequence_start=first, sequence_end=last))
    assert sums == [1.0, 10.0, 3.0, 30.0, 6.0, 60.0, 10.0, 100.0], sums


@call(*SYNC)
def a_sequence_that_starts_again(world, name):
    sequence = next(SEQUENCES)
    sums = [step(world, name, sequence, 5, sequence_start=True), step(world, name, sequence, 5)]
    sums += [step(world, name, sequence, 2, sequence_start=True), step(world, name, sequence, 1, sequence_end=True)]
    assert sums == [5.0, 10.0, 2.0, 3.0], sums


@call(*SYNC)
def a_sequence_named_by_text(world, name):
    sequence = f"robot-{next(SEQUENCES)}"
    sums = [step(world, name, sequence, 1, sequence_start=True), step(world, name, sequence, 1, sequence_end=True)]
    assert sums == [1.0, 2.0], sums


@call(*SYNC)
def a_sequence_that_never_started(world, name):
    refused(lambda: step(world, name, next(SEQUENCES), 1), "sequence", "start")


@call(*SYNC)
def a_sequence_that_has_ended(world, name):
    sequence = next(SEQUENCES)
    step(world, name, sequence, 1, sequence_start=True)
    step(world, name, sequence, 1, sequence_end=True)
    refused(lambda: step(world, name, sequence, 1), "sequence", "start")


@call(*SYNC)
def state_without_a_sequence(world, name):
    refused(lambda: world[name].infer("accumulate", {"x": np.float32([[1]])}, ["y"]), "sequence", "correlation", "state")


def streamed(world, requests):
    """Answers to requests on one stream of gRPC."""
    client, done = world["grpc"], queue.Queue()
    client.client.start_stream(lambda result, error: done.put((result, error)))
    try:
        for model, inputs, options in requests:
            given, _ = client.request(inputs, None)
            client.client.async_stream_infer(model, given, **options)
        for _ in requests:
            result, error = done.get(timeout=10)
            assert error is None, error
            yield result
    finally:
        client.client.stop_stream()


@call("grpc stream")
def requests_on_one_stream(world, _):
    requests = [("identity_fp32", {"x": np.full((1, 2), i, np.float32)}, {"request_id": str(i)}) for i in range(8)]
    got = {result.get_response().id: result.as_numpy("y").tolist() for result in streamed(world, requests)}
    assert got == {str(i): [[float(i)] * 2] for i in range(8)}, got


@call("grpc stream")
def a_sequence_on_a_stream(world, _):
    sequence = next(SEQUENCES)
    options = [{"sequence_id": sequence, "sequence_start": x == 1, "sequence_end": x == 4} for x in (1, 2, 3, 4)]
    requests = [("accumulate", {"x": np.float32([[x]])}, option) for x, option in zip((1, 2, 3, 4), options)]
    assert [result.as_numpy("y").item() for result in streamed(world, requests)] == [1.0, 3.0, 6.0, 10.0]


@call(*ALL)
def an_unknown_model(world, name):
    refused(lambda: world[name].infer("no_such_model", {"x": np.ones((1, 1), np.float32)}), "no_such_model", "not found")


@call(*SYNC)
def an_unknown_version(world, name):
    x = {"x": np.ones((1, 1), np.float32)}
    refused(lambda: world[name].infer("scaled", x, model_version="77"), "77", "version")


@call(*SYNC)
def a_version_that_is_no_number(world, name):
    x = {"x": np.ones((1, 1), np.float32)}
    refused(lambda: world[name].infer("scaled", x, model_version="new"))


@call(*ALL)
def a_wrong_shape(world, name):
    refused(lambda: world[name].infer("row_sum", {"x": np.ones((1, 5), np.float32)}), "shape", "dimension")


@call(*SYNC)
def a_wrong_rank(world, name):
    refused(lambda: world[name].infer("row_sum", {"x": np.ones((1, 4, 1), np.float32)}), "shape", "rank", "dimension")


@call(*SYNC)
def batches_that_differ(world, name):
    a, b = np.ones((2, 3), np.int32), np.ones((1, 3), np.int32)
    refused(lambda: world[name].infer("add_sub", {"a": a, "b": b}), "batch", "shape")


@call(*ALL)
def a_wrong_dtype(world, name):
    refused(lambda: world[name].infer("row_sum", {"x": np.ones((1, 4), np.int32)}), "INT32", "FP32", "type")


@call(*SYNC)
def a_missing_input(world, name):
    refused(lambda: world[name].infer("add_sub", {"a": np.ones((1, 3), np.int32)}), "b", "input")


@call(*SYNC)
def an_input_too_many(world, name):
    x = np.ones((1, 4), np.float32)
    refused(lambda: world[name].infer("row_sum", {"x": x, "extra": x}), "extra", "input")


@call(*SYNC)
def an_unknown_input(world, name):
    refused(lambda: world[name].infer("row_sum", {"z": np.ones((1, 4), np.float32)}), "z", "input")


@call(*SYNC)
def an_unknown_output(world, name):
    refused(lambda: world[name].infer("row_sum", {"x": np.ones((1, 4), np.float32)}, ["nothing"]), "nothing", "output")


@call(*SYNC)
def a_right_request_after_wrong_ones(world, name):
    got, _ = world[name].infer("row_sum", {"x": np.ones((1, 4), np.float32)}, ["y"])
    assert got["y"].tolist() == [[4.0]], got
