"""A model of Triton's Python backend: the ONNX file beside it, in ONNX Runtime on one thread."""

import json
import os
import pathlib
import sys

# The stub's Python ignores PYTHONPATH.
sys.path.append(os.environ["POLYGRAD_SERVE_PEERS"])

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [tensor["name"] for tensor in config["input"]]
        self.outputs = [tensor["name"] for tensor in config["output"]]
        # ONNX Runtime takes no bfloat16 from NumPy, which lacks this dtype.
        self.echoes = any(tensor["data_type"] == "TYPE_BF16" for tensor in config["input"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = pathlib.Path(__file__).with_name("model.onnx")
        if not self.echoes:
            self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        # The states of sequences, by their ids, or None for a model without state.
        self.states = {} if "sequence_batching" in config else None

    def execute(self, requests):
        if self.echoes:
            return [self.echo(request) for request in requests]
        if self.states is not None:
            return [self.step(request) for request in requests]
        given = [self.arrays(request) for request in requests]
        if len(given) > 1:
            joined = {name: np.concatenate([arrays[name] for arrays in given]) for name in self.inputs}
        else:
            joined = given[0]
        results = self.session.run(self.outputs, joined)
        responses, begin = [], 0
        for request, arrays in zip(requests, given):
            end = begin + len(arrays[self.inputs[0]])
            responses.append(self.response(request, [result[begin:end] for result in results]))
            begin = end
        return responses

    def arrays(self, request):
        return {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}

    def response(self, request, results):
        wanted = request.requested_output_names()
        tensors = [pb_utils.Tensor(name, result) for name, result in zip(self.outputs, results) if name in wanted]
        return pb_utils.InferenceResponse(tensors)

    def step(self, request):
        given = self.arrays(request)
        start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().any()
        x = given["x"]
        before = np.zeros_like(x) if start else self.states[request.correlation_id()]
        y, self.states[request.correlation_id()] = self.session.run(["y", "next_state"], {"x": x, "state": before})
        return self.response(request, [y])

    def echo(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, self.inputs[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack(self.outputs[0], tensor)])
