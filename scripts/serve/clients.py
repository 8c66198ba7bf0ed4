"""The four clients of tritonclient behind one interface.

Each has the same methods. An answer of `infer` is (arrays by output, the answer as a dictionary).
"""

import asyncio

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils

DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def datatype(array):
    return tritonclient.utils.np_to_triton_dtype(array.dtype)


class Triton:
    """tritonclient over HTTP or gRPC; `loop` runs asynchronous calls."""

    def __init__(self, module, client, loop=None, binary_in=True, binary_out=True):
        self.module, self.client, self.loop = module, client, loop
        self.http = "http" in module.__name__
        self.binary = {"binary_in": binary_in, "binary_out": binary_out}

    def do(self, name, *arguments, **options):
        """Calls a method of the client."""
        done = getattr(self.client, name)(*arguments, **options)
        return self.loop.run_until_complete(done) if self.loop else done

    def read(self, name, *arguments, **options):
        """The same, as a dictionary."""
        return self.do(name, *arguments, **options, **({} if self.http else {"as_json": True}))

    def input(self, name, array, kind=None):
        given = self.module.InferInput(name, list(array.shape), kind or datatype(array))
        extra = {"binary_data": self.binary["binary_in"]} if self.http else {}
        return given.set_data_from_numpy(array, **extra)

    def output(self, name):
        extra = {"binary_data": self.binary["binary_out"]} if self.http else {}
        return self.module.InferRequestedOutput(name, **extra)

    def request(self, inputs, outputs, kind=None):
        """The client's inputs and outputs. If answers are not binary, outputs must be requested by name."""
        given = [self.input(name, array, kind) for name, array in inputs.items()]
        return given, [self.output(name) for name in outputs] if outputs else None

    def infer(self, model, inputs, outputs=None, kind=None, **options):
        given, wanted = self.request(inputs, outputs, kind)
        result = self.do("infer", model, given, outputs=wanted, **options)
        answer = result.get_response() if self.http else result.get_response(as_json=True)
        return {entry["name"]: result.as_numpy(entry["name"]) for entry in answer["outputs"]}, answer


async def made(make):
    """Asynchronous clients want a loop to be made in."""
    return make()


def everyone(asked):
    """All clients by name."""
    loop = asyncio.new_event_loop()

    def later(make):
        return loop.run_until_complete(made(make))

    http, http_aio, grpc, grpc_aio = tritonclient.http, tritonclient.http.aio, tritonclient.grpc, tritonclient.grpc.aio
    return {
        "json": Triton(http, http.InferenceServerClient(asked.url, concurrency=8), binary_in=False, binary_out=False),
        "binary": Triton(http, http.InferenceServerClient(asked.url, concurrency=8)),
        "http.aio": Triton(http_aio, later(lambda: http_aio.InferenceServerClient(asked.url)), loop),
        "grpc": Triton(grpc, grpc.InferenceServerClient(asked.grpc_url)),
        "grpc.aio": Triton(grpc_aio, later(lambda: grpc_aio.InferenceServerClient(asked.grpc_url)), loop),
    }
