"""A model server as Python programmers would write it: FastAPI with ONNX Runtime on one thread.

    MODEL=model.onnx python -m uvicorn --app-dir scripts/serve fastapi_model:app --port 8000

A request is a JSON object of lists by input, as is the answer. At /raw, a request is the bytes of all inputs,
concatenated; the header X-Rows has the number of rows.
"""

import os

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request
from fastapi.responses import ORJSONResponse, Response

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
inputs = [(value.name, DTYPES[value.type], value.shape[1:]) for value in session.get_inputs()]

app = FastAPI()


@app.get("/ready")
async def ready():
    return {}


@app.post("/json", response_class=ORJSONResponse)
async def as_json(given: dict[str, list]):
    results = session.run(None, {name: np.asarray(given[name], dtype) for name, dtype, _ in inputs})
    return ORJSONResponse({value.name: result.tolist() for value, result in zip(session.get_outputs(), results)})


@app.post("/raw")
async def raw(request: Request):
    body, rows, begin, given = await request.body(), int(request.headers["x-rows"]), 0, {}
    for name, dtype, shape in inputs:
        shape = [rows, *(extent if isinstance(extent, int) else -1 for extent in shape)]
        fixed = -1 not in shape
        count = int(np.prod(shape)) if fixed else -1
        given[name] = np.frombuffer(body, dtype, count, begin).reshape(shape)
        begin += given[name].nbytes
    return Response(session.run(None, given)[0].tobytes(), media_type="application/octet-stream")
