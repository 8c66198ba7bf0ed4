"""Ends, kills, reloads and floods an inference server under load, and counts the requests that clients lose.

    eval "$(cargo xtask setup judges)"
    python3 -s scripts/serve/operations.py target/release/polygrad [--terms 100] [--kills 100] [--reloads 200] [--soak 30]

--terms: SIGTERM under load; every request that was sent on an open connection is answered, and the exit status is 0.
--kills: kill -9 under load, and the same command again: it answers within 5 s. --reloads: the model's file is replaced
under load, each tenth time by half a file; no request fails, and all numbers of an answer are of one file. --floods:
300 connections that send a header byte by byte, and 300 that send nothing; a client beside them is answered. --soak:
this many minutes of load; the memory grows by less than 1 % from the first tenth of the time to the last.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time

import models
import servers

CLIENTS = 8


def body(rows):
    x = {"name": "x", "datatype": "FP32", "shape": [rows, 8], "data": [1.0] * (8 * rows)}
    return json.dumps({"inputs": [x]})


class Client(threading.Thread):
    """Sends one request after another until no connection can be made."""

    def __init__(self, port, rows):
        super().__init__()
        self.port, self.body = port, body(rows)
        self.answers, self.lost, self.mixed, self.factors = 0, [], 0, set()
        self.stop = threading.Event()

    def run(self):
        connection = None
        while not self.stop.is_set():
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                try:
                    connection.connect()
                except OSError:
                    return
            try:
                connection.request("POST", "/v2/models/scaled/infer", self.body)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                if not self.stop.is_set():
                    self.lost.append(repr(error))
                return
            if answer.status != 200:
                self.lost.append(f"{answer.status}: {text[:200]}")
                return
            values = set(json.loads(text)["outputs"][0]["data"])
            self.answers += 1
            self.mixed += len(values) != 1
            self.factors |= values
            if answer.will_close:
                connection.close()
                connection = None


class Load:
    def __init__(self, port):
        self.clients = [Client(port, 1 + i % 3) for i in range(CLIENTS)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.stop.set()
        for client in self.clients:
            client.join()

    def answers(self):
        return sum(client.answers for client in self.clients)

    def lost(self):
        return [error for client in self.clients for error in client.lost]


def write(path, factor, share=1.0):
    """Replaces the model's file by one that multiplies by `factor`, or by the first part of it."""
    part = path.with_name("part")
    data = models.scaled(factor).SerializeToString()
    part.write_bytes(data[: int(len(data) * share)])
    part.rename(path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Trial:
    def __init__(self, program, folder):
        self.folder = pathlib.Path(folder)
        self.model = self.folder / "scaled" / "1" / "model.onnx"
        self.model.parent.mkdir(parents=True)
        write(self.model, 1.0)
        self.program, self.failures = program, []

    def server(self, port, *options):
        command = [self.program, "serve", "--repository", self.folder, "--port", port, *options]
        return servers.Server(command, f"127.0.0.1:{port}")

    def check(self, is_good, what):
        if not is_good:
            self.failures.append(what)
            print("FAIL", what, flush=True)

    def terms(self, count):
        answers, slowest = 0, 0
        for i in range(count):
            with self.server(free_port()) as server:
                with Load(int(server.url.split(":")[1])) as load:
                    time.sleep(random.uniform(0.05, 0.3))
                    server.process.send_signal(signal.SIGTERM)
                    began = time.monotonic()
                    status = server.process.wait(30)
                    slowest = max(slowest, time.monotonic() - began)
                    # They end when the server no longer listens.
                    for client in load.clients:
                        client.join(30)
                answers += load.answers()
                self.check(status == 0, f"end {i}: exit status {status}")
                self.check(not load.lost(), f"end {i}: {load.lost()[:2]}")
        print(f"{count} ends under load: {answers} answers, the slowest end took {slowest:.2f} s", flush=True)

    def kills(self, count):
        slowest, port = 0, free_port()
        for i in range(count):
            began = time.monotonic()
            with self.server(port) as server, Load(port) as load:
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(random.uniform(0.02, 0.2))
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
            self.check(load.answers() > 0, f"kill {i}: no answers before it")
        self.check(slowest < 5, f"the slowest start took {slowest:.2f} s")
        print(f"{count} kills: each came back, the slowest within {slowest:.2f} s", flush=True)

    def reloads(self, count):
        port = free_port()
        with self.server(port, "--watch", "0.1", "--control") as server:
            with Load(port) as load:
                for i in range(count):
                    write(self.model, float(i + 2), 0.5 if i % 10 == 9 else 1.0)
                    time.sleep(random.uniform(0.0, 0.1))
                    if i % 2:
                        control = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                        control.request("POST", "/v2/repository/models/scaled/load", "{}")
                        status = control.getresponse().status
                        control.close()
                        self.check((status == 200) == (i % 10 != 9), f"reload {i}: status {status}")
            factors = set().union(*(client.factors for client in load.clients))
            self.check(not load.lost(), f"reloads: {load.lost()[:2]}")
            self.check(not any(client.mixed for client in load.clients), "an answer mixes two files")
            self.check(not any(factor % 10 == 1 and factor > 1 for factor in factors), "half a file answered")
            self.check(len(factors) > count / 4, f"only {len(factors)} files answered")
            print(f"{count} replaced files: {load.answers()} answers by {len(factors)} of them", flush=True)
            server.process.send_signal(signal.SIGTERM)
        write(self.model, 1.0)

    def floods(self):
        port = free_port()
        with self.server(port) as server:
            held = []
            for i in range(600):
                try:
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=2))
                except OSError:
                    break
            stop = time.monotonic() + 20
            with Load(port) as load:
                while time.monotonic() < stop:
                    for connection in held[::2]:
                        try:
                            connection.send(b"G")
                        except OSError:
                            pass
                    time.sleep(0.5)
            self.check(not load.lost(), f"floods: {load.lost()[:2]}")
            self.check(load.answers() > 1000, f"only {load.answers()} answers beside slow connections")
            closed = 0
            for connection in held:
                connection.setblocking(False)
                try:
                    closed += connection.recv(1) == b""
                except BlockingIOError:
                    pass
                except OSError:
                    closed += 1
            print(f"{len(held)} slow connections for 20 s: {load.answers()} answers beside them, {closed} were closed", flush=True)
            self.check(server.process.poll() is None, "the server ended")

    def soak(self, minutes):
        port = free_port()
        with self.server(port) as server, Load(port) as load:
            sizes, end = [], time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                time.sleep(1)
                sizes.append(server.resident())
        tenth = max(1, len(sizes) // 10)
        # Buffers reach their final size during the first tenth.
        first, last = sum(sizes[tenth : 2 * tenth]) / tenth, sum(sizes[-tenth:]) / tenth
        self.check(not load.lost(), f"soak: {load.lost()[:2]}")
        self.check(last < 1.01 * first, f"memory grew from {first:.2f} to {last:.2f} MB")
        print(f"{minutes} minutes: {load.answers()} answers, memory {first:.2f} MB at first, {last:.2f} at last", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for what in ("terms", "kills", "reloads"):
        parser.add_argument(f"--{what}", type=int, default=0)
    parser.add_argument("--floods", action="store_true")
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="polygrad-operations-") as folder:
        trial = Trial(args.program, folder)
        for what in ("terms", "kills", "reloads"):
            if getattr(args, what):
                getattr(trial, what)(getattr(args, what))
        if args.floods:
            trial.floods()
        if args.soak:
            trial.soak(args.soak)
    sys.exit(1 if trial.failures else 0)


if __name__ == "__main__":
    main()
