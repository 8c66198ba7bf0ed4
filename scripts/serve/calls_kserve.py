"""Calls by the clients of kserve, over HTTP and gRPC."""

import asyncio

import kserve
import numpy as np
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from registry import call

DATATYPES = {"float32": "FP32", "float64": "FP64", "int32": "INT32", "int64": "INT64"}


class KServe:
    """kserve's clients, which are asynchronous."""

    def __init__(self, client, loop, base=None):
        self.client, self.loop, self.base = client, loop, [base] if base else []

    def do(self, name, *arguments):
        return self.loop.run_until_complete(getattr(self.client, name)(*self.base, *arguments))

    def infer(self, model, inputs, binary=True, **options):
        given = []
        for name, array in inputs.items():
            tensor = kserve.InferInput(name, list(array.shape), DATATYPES[array.dtype.name])
            tensor.set_data_from_numpy(array, binary_data=binary)
            given.append(tensor)
        request = kserve.InferRequest(model_name=model, infer_inputs=given, **options)
        more = {"model_name": model} if self.base else {}
        answer = self.loop.run_until_complete(self.client.infer(*self.base, request, **more))
        return {output.name: output.as_numpy() for output in answer.outputs}, answer

def world(asked):
    """Both clients."""
    loop = asyncio.new_event_loop()

    async def made():
        return InferenceRESTClient(RESTConfig(protocol="v2")), InferenceGRPCClient(asked.grpc_url)

    rest, grpc = loop.run_until_complete(made())
    return {"kserve.rest": KServe(rest, loop, f"http://{asked.url}"), "kserve.grpc": KServe(grpc, loop)}


@call("kserve.rest", "kserve.grpc")
def live_and_ready(world, name):
    assert world[name].do("is_server_live") and world[name].do("is_server_ready")


@call("kserve.rest", "kserve.grpc")
def model_ready(world, name):
    assert world[name].do("is_model_ready", "identity_fp32")


# JSON first: MLServer closes a connection after bytes that it cannot read.
@call(("kserve.rest", "json"), ("kserve.rest", "binary"))
def infer_and_names(world, name, how):
    x = np.float64([[1.5, -0.0, 1e300]])
    got, answer = world[name].infer("identity_fp64", {"x": x}, binary=how == "binary", request_id="k1")
    assert np.array_equal(got["y"], x) and got["y"].dtype == x.dtype, got
    assert (answer.id, answer.model_name) == ("k1", "identity_fp64"), answer


@call("kserve.grpc")
def infer_whole_numbers(world, name):
    x = np.int64([[2**62, -1]])
    got, answer = world[name].infer("identity_int64", {"x": x}, request_id="k2")
    assert np.array_equal(got["y"], x) and got["y"].dtype == x.dtype, got
    assert (answer.id, answer.model_name) == ("k2", "identity_int64"), answer


@call("kserve.rest", "kserve.grpc")
def infer_several(world, name):
    a, b = np.int32([[1, 2]]), np.int32([[10, 20]])
    got, _ = world[name].infer("add_sub", {"a": a, "b": b})
    assert got["sum"].tolist() == [[11, 22]] and got["difference"].tolist() == [[-9, -18]], got


@call("kserve.rest", "kserve.grpc")
def infer_with_parameters(world, name):
    got, _ = world[name].infer("identity_fp32", {"x": np.float32([[1]])}, parameters={"note": "x"})
    assert got["y"].tolist() == [[1.0]], got
