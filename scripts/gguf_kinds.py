"""Writes the values of a GGUF file of a Llama again in other kinds: Q4_0.gguf, Q8_0.gguf and F32.gguf.

    pip install gguf numpy
    python3 scripts/gguf_kinds.py FILE.gguf FOLDER
"""

import pathlib
import sys

import gguf
import numpy as np

# Their numbers as general.file_type.
KINDS = {"Q4_0": 2, "Q8_0": 7, "F32": 0}


def write(file, folder, kind):
    writer = gguf.GGUFWriter(folder / f"{kind}.gguf", "llama")
    for field in file.fields.values():
        # The writer adds these itself.
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = KINDS[kind] if field.name == "general.file_type" else field.contents()
        of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], of)
    for tensor in file.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        dtype = gguf.GGMLQuantizationType[kind if len(tensor.shape) == 2 else "F32"]
        data = values if dtype == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(values, dtype)
        writer.add_tensor(tensor.name, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    path, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        write(gguf.GGUFReader(path), folder, kind)


if __name__ == "__main__":
    main()
