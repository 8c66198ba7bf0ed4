"""Times inference servers in turns: each runs on core 0, and the load generator on core 1.

    python scripts/serve/bench.py ONNX_FOLDER [--ours NAME=COMMAND ...] [--only identity,mlp,...] [--clients 1,16,32] [--turns 5]
                                  [--seconds 2] [--sides NAME,...] [--offline COMMAND] [--overload] [--json FILE]

ONNX_FOLDER has mlp.onnx, cnn.onnx, lstm.onnx, bert.onnx and resnet18.onnx, which `cargo run --release -- --export FOLDER` in benches/onnx
writes. In a COMMAND of ours, {models} is a folder of NAME/VERSION/model.onnx, and {port} the port for HTTP and gRPC, such as
--ours 'polygrad=target/release/polygrad serve --repository {models} --port {port}'.

Identities of 64 and of 16,384 numbers are compared with handwritten routes on axum and tonic, and with furnace-server;
models are compared with Triton (its Python backend, since no package has its other backends), MLServer and FastAPI, all
with ONNX Runtime on one thread. Every server's answer is first compared with ONNX Runtime's. With --overload, requests
arrive at twice the rate that each server can answer, for 60 s or --seconds. Their deadline is four times the 99th
percentile at 32 clients, and is sent if the protocol supports it. Capacity is the mean of measurements before and
after, since machines change their speed.

--offline COMMAND is a loop without a server, which runs {model} for {seconds} with 32 rows at a time on the servers'
core, in turns with them, and prints at its end how many µs a run took: --offline
'benches/onnx/target/release/polygrad-bench-onnx --profile --batch 32 --seconds {seconds} {model}'.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import pathlib
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading

import bodies
import models
import numpy as np
import onnx
import onnxruntime
import servers

SERVER_CORE, LOAD_CORE = 0, 1
MODELS = ["mlp", "cnn", "lstm", "bert", "resnet18"]
IDENTITIES = {"identity": 64, "identity-64k": 16384}
BATCH = 32


@dataclasses.dataclass
class Side:
    """A running server, and the request that it gets."""

    name: str
    server: servers.Server
    request: bodies.Request
    body: pathlib.Path

    def url(self):
        return self.server.grpc_url if self.request.grpc else self.server.url

    def load(self, *options):
        """The load program's measurements of the server."""
        line = ["taskset", "-c", LOAD_CORE, servers.load(), "load", "--url", self.url() + self.request.path, "--body", self.body]
        line += ["--grpc"] * self.request.grpc
        for name, value in self.request.headers.items():
            line += ["--header", f"{name}: {value}"]
        done = subprocess.run(list(map(str, [*line, *options])), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.name}: {done.stderr}")
        return json.loads(done.stdout)


class Offline:
    """A loop without a server, which takes turns with the servers."""

    name = "offline, 32 rows"

    def __init__(self, command, model):
        self.command, self.model, self.server = command, model, self

    def load(self, *options):
        seconds = options[options.index("--seconds") + 1]
        line = shlex.split(self.command.format(model=self.model, seconds=seconds))
        done = subprocess.run(["taskset", "-c", str(SERVER_CORE), *line], capture_output=True, text=True)
        found = re.search(r"(\d+) µs", done.stdout)
        if done.returncode or not found:
            sys.exit(f"{self.command}: {done.stderr or 'it did not say how many µs a run took'}")
        micros = float(found[1])
        latency = {"p50": micros, "p99": micros}
        return {"statuses": {"200": BATCH}, "broken": 0, "per_second": BATCH / micros * 1e6, "latency_us": latency}

    def resident(self):
        return 0.0


def inputs_of(name, session):
    """One input row, the same for all servers."""
    random = np.random.default_rng(1)
    rows = {}
    for value in session.get_inputs():
        shape = [1, *value.shape[1:]]
        if value.type == "tensor(int64)":
            rows[value.name] = random.integers(1, 2 if value.name == "mask" else 1000, shape, np.int64)
        else:
            rows[value.name] = random.standard_normal([e if isinstance(e, int) else IDENTITIES[name] for e in shape]).astype(np.float32)
    return rows


def contestants(name, folder, given):
    """(name, server, request) of all contestants."""
    sides = []
    if name in IDENTITIES:
        width = IDENTITIES[name]
        kinds = [("axum", bodies.binary), ("tonic", bodies.message), ("furnace", bodies.binary)]
        sides += [(kind, servers.by_hand(kind, SERVER_CORE, 9300 + i, width), how) for i, (kind, how) in enumerate(kinds)]
    else:
        fastapi = servers.fastapi(folder / "1", name, SERVER_CORE)
        triton = servers.triton(folder / str(BATCH), SERVER_CORE)
        single = servers.mlserver(folder / "1", SERVER_CORE, 9100)
        joined = servers.mlserver(folder / str(BATCH), SERVER_CORE, 9110)
        sides += [("fastapi raw", fastapi, bodies.raw), ("fastapi json", fastapi, bodies.lists)]
        sides += [("triton http", triton, bodies.binary), ("triton grpc", triton, bodies.message)]
        sides += [("mlserver grpc", single, bodies.message), ("mlserver json", single, bodies.as_json)]
        sides += [("mlserver grpc batched", joined, bodies.message)]
    for i, (called, line) in enumerate(given):
        server = servers.ours(line, folder / "1", SERVER_CORE, 9400 + i)
        sides += [(called, server, bodies.binary), (f"{called} grpc", server, bodies.message)]
    return sides


@contextlib.contextmanager
def running(name, onnx_folder, given, wanted_sides):
    """All sides of a workload, started, and checked against ONNX Runtime."""
    with tempfile.TemporaryDirectory(prefix="polygrad-bench-") as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        if name in IDENTITIES:
            model, found = "identity_fp32", [entry for entry in models.models() if entry[0] == "identity_fp32"]
        else:
            model, found = name, [(name, 1, onnx.load(onnx_folder / f"{name}.onnx"))]
        for batch in (1, BATCH):
            models.write(folder / str(batch), found, batch)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / "1/onnx" / model / "1/model.onnx", options, providers=["CPUExecutionProvider"])
        rows = inputs_of(name, session)
        outputs = [value.name for value in session.get_outputs()]
        expected = session.run(None, rows)[0].ravel()
        sides, started = [], []
        for called, server, how in contestants(name, folder, given):
            if wanted_sides and called not in wanted_sides:
                continue
            if server not in started:
                started.append(stack.enter_context(server))
            asked, wanted = rows, outputs
            if called == "furnace":
                # It renames the tensors of a model with only one.
                asked, wanted = {"input": rows["x"]}, ["output"]
            request = how(model, asked, wanted)
            body = folder / f"{len(sides)}.body"
            body.write_bytes(request.body)
            side = Side(called, server, request, body)
            got = bodies.answer(request, side.url())
            worst = float(np.abs(got - expected).max() / np.abs(expected).max()) if got.shape == expected.shape else np.inf
            if not worst < 1e-4:
                sys.exit(f"{called} answers {name} with values that differ by {worst:.1e} from ONNX Runtime's")
            sides.append(side)
        yield sides


def median(reports, read):
    return statistics.median(map(read, reports))


def closed(name, sides, clients, turns, seconds):
    """Requests a second and latencies, each side once a turn."""
    reports = {side.name: [] for side in sides}
    for turn in range(turns):
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            report = side.load("--clients", clients, "--seconds", seconds, "--warmup", 0.3)
            if set(report["statuses"]) != {"200"} or report["broken"]:
                print(f"{side.name}: {report['statuses']}, {report['broken']} broken: {report['reason']}", file=sys.stderr)
            reports[side.name].append(report)
    found = []
    for side in sides:
        of = reports[side.name]
        rates = sorted(report["per_second"] for report in of)
        found.append({
            "workload": name, "clients": clients, "side": side.name, "per_second": statistics.median(rates),
            "least": rates[0], "most": rates[-1],
            "p50_us": median(of, lambda r: r["latency_us"].get("p50", 0.0)),
            "p99_us": median(of, lambda r: r["latency_us"].get("p99", 0.0)),
            "megabytes": side.server.resident(),
        })
    return found


def overload(name, sides, seconds):
    """Measures arrivals at twice the capacity: the share answered in time, how fast the rest is refused, and memory."""
    found = []
    for side in sides:
        capacity = side.load("--clients", 32, "--seconds", 3)
        deadline = max(50.0, 4 * capacity["latency_us"]["p99"] / 1000)
        side.request = bodies.with_timeout(side.request, deadline)
        side.body.write_bytes(side.request.body)
        megabytes = [side.server.resident()]
        halfway = threading.Timer(seconds / 2, lambda: megabytes.append(side.server.resident()))
        halfway.start()
        rate = 2 * capacity["per_second"]
        report = side.load("--clients", 512, "--rate", rate, "--seconds", seconds, "--deadline-ms", deadline)
        halfway.join()
        megabytes.append(side.server.resident())
        after = side.load("--clients", 32, "--seconds", 3)
        capacities = [capacity["per_second"], after["per_second"]]
        found.append({
            "workload": name, "side": side.name, "capacities": capacities, "deadline_ms": deadline,
            "goodput": report["in_time_per_second"] / statistics.mean(capacities), "statuses": report["statuses"],
            "broken": report["broken"], "refused_p99_us": report["refused_us"].get("p99"), "megabytes": megabytes,
        })
    return found


def rows(head, lines):
    """A table."""
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for line in lines:
        print(f"| {' | '.join(line)} |")
    sys.stdout.flush()


def table(found):
    best = max(row["per_second"] for row in found)
    print(f"\n{found[0]['workload']}, {found[0]['clients']} clients\n")
    head = ["server", "requests a second", "least to most", "of the best", "median, µs", "p99, µs", "MB"]
    rows(head, ([
        row["side"], f"{row['per_second']:.0f}", f"{row['least']:.0f} to {row['most']:.0f}", f"{row['per_second'] / best:.2f}",
        f"{row['p50_us']:.0f}", f"{row['p99_us']:.0f}", f"{row['megabytes']:.0f}",
    ] for row in found))


def table_of_overload(found):
    print(f"\n{found[0]['workload']}, arrivals at twice the capacity\n")
    head = ["server", "capacity, before and after", "goodput of it", "deadline, ms", "answers", "broken", "refused, p99 µs",
            "MB before, halfway, at the end"]
    rows(head, ([
        row["side"], ", ".join(f"{rate:.0f}" for rate in row["capacities"]), f"{row['goodput']:.2f}", f"{row['deadline_ms']:.0f}",
        ", ".join(f"{status}: {count}" for status, count in row["statuses"].items()), str(row["broken"]),
        "-" if row["refused_p99_us"] is None else f"{row['refused_p99_us']:.0f}",
        ", ".join(f"{megabytes:.1f}" for megabytes in row["megabytes"]),
    ] for row in found))


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(": ")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    with open("/proc/loadavg") as file:
        return f"{datetime.date.today()}, {model}, load average {file.read().split()[0]} at the start"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("onnx", type=pathlib.Path)
    parser.add_argument("--ours", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--only", default=",".join([*IDENTITIES, *MODELS]))
    parser.add_argument("--clients", default="1,16,32")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--sides", type=lambda text: text.split(","), help="only these servers, by their names in the table")
    parser.add_argument("--offline", metavar="COMMAND")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    asked = parser.parse_args()
    given = [entry.split("=", 1) for entry in asked.ours]
    print(machine(), flush=True)
    every = []
    for name in asked.only.split(","):
        with running(name, asked.onnx, given, asked.sides) as sides:
            if asked.overload:
                found = overload(name, sides, asked.seconds or 60)
                table_of_overload(found)
                every += found
                continue
            for clients in map(int, asked.clients.split(",")):
                beside = [Offline(asked.offline, name)] if asked.offline and clients >= BATCH else []
                found = closed(name, sides + beside, clients, asked.turns, asked.seconds or 2)
                table(found)
                every += found
    if asked.json:
        asked.json.write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
