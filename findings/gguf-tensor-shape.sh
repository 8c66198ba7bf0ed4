#!/usr/bin/env bash
# gguf's reader: a tensor's `shape` is its `data`'s shape reversed; for a quantized tensor it fits `data` in neither
# order.
#
# Guess, written down first: `ReaderTensor.shape` is the shape that was written, which is that of `data`, or for
# quantized blocks the logical shape in the same order of axes.
#
# Seen on 2026-11-29 with gguf 0.17.1 (numpy 2.4.6, Python 3.11): an array of 3 rows and 64 columns is read with `shape`
# [64 3] and data of (3, 64). As Q4_0 it has `shape` [64 3] and data of (3, 36): bytes, 18 for a block of 32. So
# `data.reshape(shape)` succeeds for floats and silently scrambles every weight that is not square.
#
# Source: the file stores extents with the fastest-varying axis first (ggml's ne). gguf-py's reader keeps this order in
# `shape` and reverses it for `data`. Its README mentions neither.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install gguf==0.17.1 numpy==2.4.6
"$folder/venv/bin/python" - "$folder/model.gguf" <<'PY'
import sys

import gguf
import numpy as np

path = sys.argv[1]
kind = gguf.GGMLQuantizationType.Q4_0
weight = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
writer = gguf.GGUFWriter(path, "llama")
writer.add_tensor("plain", weight)
writer.add_tensor("blocks", gguf.quants.quantize(weight, kind), raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

read = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
for name, tensor in read.items():
    print(name, "shape", tensor.shape.tolist(), "data", tensor.data.shape, tensor.data.dtype)
plain, blocks = read["plain"], read["blocks"]
assert plain.shape.tolist() == [64, 3] and plain.data.shape == (3, 64)
assert blocks.shape.tolist() == [64, 3] and blocks.data.shape == (3, 36)
assert np.array_equal(plain.data, weight)
scrambled = plain.data.reshape(plain.shape.tolist())
print("data.reshape(shape).T is the weight:", np.array_equal(scrambled.T, weight))
assert not np.array_equal(scrambled.T, weight)
PY
