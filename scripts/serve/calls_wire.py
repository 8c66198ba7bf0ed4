"""Calls without a client: bodies that no client would send, and features beyond the protocol."""

import http.client
import json
import socket

import numpy as np
from registry import call

INFER = "/v2/models/{}/infer"


def world(asked):
    """Only addresses are needed."""
    return asked


def body(head, *tensors):
    """The body of the binary extension, and its header."""
    text = json.dumps(head).encode()
    return b"".join([text, *tensors]), {"Inference-Header-Content-Length": str(len(text))}


class Answer:
    def __init__(self, answer):
        self.status, self.headers, self.bytes = answer.status, answer.headers, answer.read()
        self.text = self.bytes.decode(errors="replace")

    def json(self):
        return json.loads(self.text)

    def refuses(self, *statuses):
        """Checks for a refusal: a status that blames the request, and a JSON object with the reason."""
        assert self.status in (statuses or range(400, 500)), (self.status, self.text[:200])
        assert isinstance(self.json()["error"], str) and self.json()["error"], self.text[:200]


def ask(world, method, path, content=None, headers=None, url=None):
    connection = http.client.HTTPConnection(url or world.url, timeout=20)
    try:
        connection.request(method, path, content, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def infer(world, model, content, headers=None):
    return ask(world, "POST", INFER.format(model), content, headers)


def tensor(name, kind, shape, data):
    return {"name": name, "datatype": kind, "shape": shape, "data": data}


def posted(world, model, *tensors, **more):
    return infer(world, model, json.dumps({"inputs": list(tensors)} | more))


def y(answer):
    assert answer.status == 200, (answer.status, answer.text[:300])
    (output,) = answer.json()["outputs"]
    return output


@call("wire")
def data_in_one_list(world, _):
    output = y(posted(world, "identity_fp32", tensor("x", "FP32", [2, 2], [1, 2.5, -3, 4])))
    assert output["data"] == [1, 2.5, -3, 4] and output["shape"] == [2, 2], output


@call("wire")
def data_in_nested_lists(world, _):
    output = y(posted(world, "identity_fp32", tensor("x", "FP32", [2, 2], [[1, 2.5], [-3, 4]])))
    assert np.ravel(output["data"]).tolist() == [1, 2.5, -3, 4], output


@call("wire")
def whole_numbers_are_whole(world, _):
    largest = 2**63 - 1
    answer = posted(world, "identity_int64", tensor("x", "INT64", [1, 2], [largest, -largest - 1]))
    assert np.ravel(np.array(y(answer)["data"], object)).tolist() == [largest, -largest - 1], answer.text


@call("wire")
def booleans_are_booleans(world, _):
    output = y(posted(world, "identity_bool", tensor("x", "BOOL", [1, 2], [True, False])))
    assert output["data"] in ([True, False], [[True, False]]), output


@call("wire")
def the_answer_is_typed(world, _):
    answer = posted(world, "identity_fp32", tensor("x", "FP32", [1, 1], [1]))
    assert answer.headers["content-type"].startswith("application/json"), answer.headers


@call("wire")
def an_empty_batch_is_answered_or_refused(world, _):
    answer = posted(world, "identity_fp32", tensor("x", "FP32", [0, 3], []))
    if answer.status == 200:
        assert y(answer)["shape"] == [0, 3], answer.text
    else:
        answer.refuses()


@call("wire")
def an_id_that_is_text(world, _):
    answer = posted(world, "identity_fp32", tensor("x", "FP32", [1, 1], [1]), id="ü\"\\")
    assert answer.json()["id"] == "ü\"\\", answer.text


@call("wire")
def parameters_of_tensors(world, _):
    x = tensor("x", "FP32", [1, 1], [1]) | {"parameters": {"content_type": "np"}}
    assert np.ravel(y(posted(world, "identity_fp32", x))["data"]).tolist() == [1.0]


@call("wire")
def members_that_nobody_knows(world, _):
    answer = posted(world, "identity_fp32", tensor("x", "FP32", [1, 1], [1]), something={"else": [1]})
    assert np.ravel(y(answer)["data"]).tolist() == [1.0]


@call("wire")
def two_requests_on_one_connection(world, _):
    connection = http.client.HTTPConnection(world.url, timeout=20)
    content = json.dumps({"inputs": [tensor("x", "FP32", [1, 1], [1])]})
    for _ in range(2):
        connection.request("POST", INFER.format("identity_fp32"), content)
        assert Answer(connection.getresponse()).status == 200
    connection.close()


@call("wire")
def a_body_in_chunks(world, _):
    content = json.dumps({"inputs": [tensor("x", "FP32", [1, 2], [1, 2])]}).encode()
    connection = http.client.HTTPConnection(world.url, timeout=20)
    parts = iter([content[:20], content[20:]])
    connection.request("POST", INFER.format("identity_fp32"), parts, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert np.ravel(y(Answer(connection.getresponse()))["data"]).tolist() == [1, 2]
    connection.close()


@call("wire")
def infer_at_the_path_of_a_version(world, _):
    content = json.dumps({"inputs": [tensor("x", "FP32", [1, 1], [3])]})
    for version, value in (("1", 3.0), ("2", 6.0)):
        answer = ask(world, "POST", f"/v2/models/scaled/versions/{version}/infer", content)
        assert np.ravel(y(answer)["data"]).tolist() == [value], answer.text


@call("wire")
def binary_in_and_json_out(world, _):
    x = np.float32([[1, 2, 3]])
    head = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}]}
    output = y(infer(world, "identity_fp32", *body(head, x.tobytes())))
    assert output["data"] == [1.0, 2.0, 3.0], output


def split(answer):
    """The JSON of an answer, and the bytes after it."""
    assert answer.status == 200, (answer.status, answer.text[:200])
    length = int(answer.headers["Inference-Header-Content-Length"])
    return json.loads(answer.bytes[:length]), answer.bytes[length:]


@call("wire")
def json_in_and_binary_out(world, _):
    x, asked = tensor("x", "FP32", [1, 3], [1, 2, 3]), [{"name": "y", "parameters": {"binary_data": True}}]
    head, rest = split(posted(world, "identity_fp32", x, outputs=asked))
    assert head["outputs"][0]["parameters"]["binary_data_size"] == 12, head
    assert np.frombuffer(rest, np.float32).tolist() == [1.0, 2.0, 3.0]


@call("wire")
def all_outputs_binary_by_a_parameter(world, _):
    pair = [tensor(name, "INT32", [1, 2], [3, 4]) for name in "ab"]
    head, rest = split(posted(world, "add_sub", *pair, parameters={"binary_data_output": True}))
    assert len(head["outputs"]) == 2 and np.frombuffer(rest, np.int32).tolist() == [6, 8, 0, 0], (head, rest)


@call("wire")
def one_output_binary_and_one_not(world, _):
    pair = [tensor(name, "INT32", [1, 2], [3, 4]) for name in "ab"]
    asked = [{"name": "sum", "parameters": {"binary_data": True}}, {"name": "difference"}]
    head, rest = split(posted(world, "add_sub", *pair, outputs=asked))
    (other,) = [output for output in head["outputs"] if output["name"] == "difference"]
    assert np.ravel(other["data"]).tolist() == [0, 0] and np.frombuffer(rest, np.int32).tolist() == [6, 8], head


GARBAGE = {
    "empty": b"",
    "cut": b'{"inputs": [',
    "no-json": b"\x00\xff\x00",
    "list": b"[]",
    "number": b"1",
    "no-inputs": b"{}",
    "inputs-null": b'{"inputs": null}',
    "deep": b"[" * 100_000,
    "trailing": b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]} more',
}


@call(*[("wire", name) for name in GARBAGE])
def bad_json_that_is(world, _, name):
    infer(world, "identity_fp32", GARBAGE[name]).refuses()


TENSORS = {
    "too-few-values": tensor("x", "FP32", [1, 3], [1, 2]),
    "too-many-values": tensor("x", "FP32", [1, 3], [1, 2, 3, 4]),
    "a-negative-shape": tensor("x", "FP32", [-1, 3], [1, 2, 3]),
    "a-huge-shape": tensor("x", "FP32", [2**62, 2**62], [1]),
    "text-for-numbers": tensor("x", "FP32", [1, 1], ["one"]),
    "null-for-numbers": tensor("x", "FP32", [1, 1], [None]),
    "no-data": {"name": "x", "datatype": "FP32", "shape": [1, 1]},
    "no-shape": {"name": "x", "datatype": "FP32", "data": [1]},
    "no-name": {"datatype": "FP32", "shape": [1, 1], "data": [1]},
    "an-unknown-dtype": tensor("x", "FP31", [1, 1], [1]),
    "ragged-lists": tensor("x", "FP32", [2, 2], [[1, 2], [3]]),
}


@call(*[("wire", name) for name in TENSORS])
def a_tensor_with(world, _, name):
    posted(world, "identity_fp32", TENSORS[name]).refuses()


VALUES = {"INT32": 2**31, "INT64": 2**63, "UINT8": 256, "BOOL": "yes"}


@call(*[("wire", kind) for kind in VALUES])
def a_value_too_large_for(world, _, kind):
    posted(world, f"identity_{kind.lower()}", tensor("x", kind, [1, 1], [VALUES[kind]])).refuses()


@call("wire")
def a_fraction_for_a_whole_number(world, _):
    posted(world, "identity_int32", tensor("x", "INT32", [1, 1], [1.5])).refuses()


@call("wire")
def an_input_given_twice(world, _):
    x = tensor("x", "FP32", [1, 1], [1])
    posted(world, "identity_fp32", x, x).refuses()


HEADS = {"too-long": "9999", "negative": "-1", "no-number": "many", "zero": "0"}


@call(*[("wire", name) for name in HEADS])
def a_head_whose_length_is(world, _, name):
    head = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}]}
    content, headers = body(head, b"\0" * 4)
    infer(world, "identity_fp32", content, headers | {"Inference-Header-Content-Length": HEADS[name]}).refuses()


SIZES = {"larger-than-the-shape": (8, 8), "smaller-than-the-shape": (2, 2), "beyond-the-body": (4, 2), "less-than-the-body": (4, 9)}


@call(*[("wire", name) for name in SIZES])
def binary_data_of_a_size(world, _, name):
    says, has = SIZES[name]
    head = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": says}}]}
    infer(world, "identity_fp32", *body(head, b"\0" * has)).refuses()


@call("wire")
def data_and_bytes_at_once(world, _):
    x = tensor("x", "FP32", [1, 1], [1]) | {"parameters": {"binary_data_size": 4}}
    infer(world, "identity_fp32", *body({"inputs": [x]}, b"\0" * 4)).refuses()


@call("wire")
def an_encoding_that_nobody_knows(world, _):
    content = json.dumps({"inputs": [tensor("x", "FP32", [1, 1], [1])]})
    infer(world, "identity_fp32", content, {"Content-Encoding": "rot13"}).refuses(400, 415)


@call("wire")
def a_gzip_that_is_none(world, _):
    infer(world, "identity_fp32", b"no gzip at all", {"Content-Encoding": "gzip"}).refuses()


@call("wire")
def a_path_that_is_none(world, _):
    assert ask(world, "GET", "/v2/nothing/here").status == 404


@call("wire")
def a_method_that_is_wrong(world, _):
    assert ask(world, "GET", INFER.format("identity_fp32")).status == 405


@call("wire")
def a_client_that_leaves(world, _):
    host, port = world.url.split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=5) as stream:
            stream.sendall(b"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert ask(world, "GET", "/v2/health/live").status == 200


@call("wire")
def metrics_are_text_for_prometheus(world, _):
    answer = ask(world, "GET", "/metrics", url=world.metrics_url)
    assert answer.status == 200 and "# TYPE" in answer.text, answer.text[:200]
    assert answer.headers["content-type"].startswith(("text/plain", "application/openmetrics-text")), answer.headers


@call("wire")
def a_description_by_openapi(world, _):
    answer = ask(world, "GET", "/openapi.json")
    assert answer.status == 200 and any("infer" in path for path in answer.json()["paths"]), answer.text[:200]


@call("wire")
def a_page_to_look_at(world, _):
    answer = ask(world, "GET", "/")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html"), answer.text[:200]
