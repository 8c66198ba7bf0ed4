"""One request in each server's format, and a reader of each answer."""

import dataclasses
import json

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.grpc._utils import _get_inference_request
from tritonclient.utils import np_to_triton_dtype


@dataclasses.dataclass
class Request:
    """A request to a path: a body with headers over HTTP, or a gRPC message."""

    path: str
    body: bytes
    headers: dict
    grpc: bool = False


def binary(model, inputs, outputs):
    """The protocol with its binary extension, in both directions."""
    tensors = [
        {"name": n, "datatype": np_to_triton_dtype(a.dtype), "shape": a.shape, "parameters": {"binary_data_size": a.nbytes}}
        for n, a in inputs.items()
    ]
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": tensors, "outputs": wanted}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    body = b"".join([head, *(array.tobytes() for array in inputs.values())])
    return Request(f"/v2/models/{model}/infer", body, headers)


def with_timeout(request, milliseconds):
    """The same request with the protocol's deadline parameter; other protocols have none."""
    microseconds = int(milliseconds * 1000)
    if request.grpc:
        message = grpc.service_pb2.ModelInferRequest.FromString(request.body)
        message.parameters["timeout"].int64_param = microseconds
        return dataclasses.replace(request, body=message.SerializeToString())
    if not request.path.startswith("/v2/"):
        return request
    length = int(request.headers.get("Inference-Header-Content-Length", len(request.body)))
    head = json.loads(request.body[:length])
    head = json.dumps({**head, "parameters": {"timeout": microseconds}}).encode()
    headers = dict(request.headers)
    if "Inference-Header-Content-Length" in headers:
        headers["Inference-Header-Content-Length"] = str(len(head))
    return dataclasses.replace(request, body=head + request.body[length:], headers=headers)


def as_json(model, inputs, _):
    """The protocol with only JSON."""
    tensors = [
        {"name": n, "datatype": np_to_triton_dtype(a.dtype), "shape": a.shape, "data": a.ravel().tolist()}
        for n, a in inputs.items()
    ]
    headers = {"Content-Type": "application/json"}
    return Request(f"/v2/models/{model}/infer", json.dumps({"inputs": tensors}).encode(), headers)


def message(model, inputs, outputs):
    """The protocol over gRPC, with raw contents."""
    given = [grpc.InferInput(n, list(a.shape), np_to_triton_dtype(a.dtype)).set_data_from_numpy(a) for n, a in inputs.items()]
    wanted = [grpc.InferRequestedOutput(name) for name in outputs]
    rest = dict(sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None)
    made = _get_inference_request(model_name=model, inputs=given, model_version="", request_id="", outputs=wanted, **rest)
    return Request("/inference.GRPCInferenceService/ModelInfer", made.SerializeToString(), {}, grpc=True)


def raw(_, inputs, __):
    """fastapi_model.py's bytes."""
    headers = {"X-Rows": str(len(next(iter(inputs.values())))), "Content-Type": "application/octet-stream"}
    return Request("/raw", b"".join(array.tobytes() for array in inputs.values()), headers)


def lists(_, inputs, __):
    """fastapi_model.py's JSON."""
    body = json.dumps({name: array.tolist() for name, array in inputs.items()})
    return Request("/json", body.encode(), {"Content-Type": "application/json"})


def answer(request, url):
    """The only output that a server gives, flat."""
    if request.grpc:
        stub = grpc.service_pb2_grpc.GRPCInferenceServiceStub(grpc._client.grpc.insecure_channel(url))
        got = stub.ModelInfer(grpc.service_pb2.ModelInferRequest.FromString(request.body))
        return np.frombuffer(got.raw_output_contents[0], np.float32)
    import urllib.request

    sent = urllib.request.Request(f"http://{url}{request.path}", request.body, request.headers, method="POST")
    with urllib.request.urlopen(sent, timeout=30) as response:
        content, length = response.read(), response.headers.get("Inference-Header-Content-Length")
    if length:
        return np.frombuffer(content[int(length) :], np.float32)
    if request.path == "/raw":
        return np.frombuffer(content, np.float32)
    read = json.loads(content)
    values = read["outputs"][0]["data"] if "outputs" in read else next(iter(read.values()))
    return np.ravel(values).astype(np.float32)
