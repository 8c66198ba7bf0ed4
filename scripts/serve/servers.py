"""Inference servers as processes: how each is started, when it is ready, and where it listens.

`cargo xtask setup judges` fetches the peers' packages, and sets POLYGRAD_SERVE_PEERS to them.
"""

import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
PATIENCE = 60


def packages():
    """The folder with MLServer and Triton."""
    folder = os.environ.get("POLYGRAD_SERVE_PEERS")
    if not folder:
        sys.exit('POLYGRAD_SERVE_PEERS is not set\n  fix: eval "$(cargo xtask setup judges)"')
    return pathlib.Path(folder)


def load():
    """The program that sends load, and serves identity models."""
    program = os.environ.get("POLYGRAD_SERVE_LOAD")
    if not program:
        sys.exit('POLYGRAD_SERVE_LOAD is not set\n  fix: eval "$(cargo xtask setup judges)"')
    return program


class Server:
    """A process that listens, on one core if it is given one, until it leaves the block."""

    def __init__(self, command, url, grpc_url=None, ready="/v2/health/ready", environment=(), folder=None, core=None):
        self.command, self.url, self.grpc_url, self.ready = list(map(str, command)), url, grpc_url, ready
        self.environment, self.folder = dict(environment), folder
        self.pin = [] if core is None else ["taskset", "-c", str(core)]

    def __enter__(self):
        environment = os.environ | self.environment
        # Only read if the server does not start.
        self.log = tempfile.NamedTemporaryFile(prefix="polygrad-serve-")
        self.process = subprocess.Popen(
            self.pin + self.command, env=environment, cwd=self.folder, stdout=self.log, stderr=self.log, start_new_session=True
        )
        end = time.monotonic() + PATIENCE
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                tail = pathlib.Path(self.log.name).read_text(errors="replace")[-2000:]
                sys.exit(f"{shlex.join(self.command)} is not ready\n{tail}")
            time.sleep(0.02)
        return self

    def answers(self):
        try:
            if self.ready is None:
                host, port = self.url.split(":")
                socket.create_connection((host, int(port)), timeout=2).close()
                return True
            with urllib.request.urlopen(f"http://{self.url}{self.ready}", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def resident(self):
        """Megabytes of memory of the process and its children."""
        pages, todo = 0, [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                pages += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
                for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                    todo += map(int, children.read_text().split())
            except OSError:
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def triton(folder, core=None, port=9000):
    """Triton with its Python backend; all models are loaded at start, and can be loaded and unloaded."""
    home = packages() / "pytriton/tritonserver"
    ports = [f"--{kind}-port={port + i}" for i, kind in enumerate(["http", "grpc", "metrics"])]
    command = [home / "bin/tritonserver", f"--model-repository={folder}/triton", f"--backend-directory={home}/backends", *ports]
    command += ["--model-control-mode=explicit", "--load-model=*"]
    return Server(command, f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", core=core)


def mlserver(folder, core=None, port=9100, workers=0):
    """MLServer, with its models in its own process unless it is given workers."""
    settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    settings |= {"parallel_workers": workers, "debug": False}
    home = pathlib.Path(folder).absolute() / "mlserver"
    (home / "settings.json").write_text(json.dumps(settings))
    command = [sys.executable, "-s", "-c", "from mlserver.cli import main; main()", "start", "."]
    environment = {"PYTHONPATH": f"{packages()}:{home}"}
    return Server(command, f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", environment=environment, folder=home, core=core)


def fastapi(folder, name, core=None, port=9200):
    """FastAPI by uvicorn, with a model of the folder."""
    command = [sys.executable, "-s", "-m", "uvicorn", "--app-dir", HERE, "fastapi_model:app", "--port", port, "--no-access-log"]
    environment = {"MODEL": str(folder / "onnx" / name / "1/model.onnx")}
    return Server(command, f"127.0.0.1:{port}", ready="/ready", environment=environment, core=core)


def by_hand(kind, core=None, port=9300, width=64):
    """A handwritten identity model on axum or tonic, or in furnace-server."""
    command = [load(), kind, "--port", port, "--width", width]
    ready = {"axum": "/v2/health/ready", "furnace": "/v2/health/ready", "tonic": None}[kind]
    return Server(command, f"127.0.0.1:{port}", f"127.0.0.1:{port}", ready=ready, core=core)


def ours(line, folder, core=None, port=9400):
    """A server with HTTP and gRPC on one port, from its command line, in which {models} and {port} are filled in."""
    command = shlex.split(line.format(models=folder / "onnx", port=port))
    return Server(command, f"127.0.0.1:{port}", f"127.0.0.1:{port}", core=core)
