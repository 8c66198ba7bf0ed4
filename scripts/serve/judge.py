"""Starts an inference server with the models of models.py, and judges it.

    eval "$(cargo xtask setup judges)"
    python3 -s scripts/serve/judge.py triton | mlserver | 'COMMAND'

In a COMMAND, {models} is a folder of NAME/VERSION/model.onnx, and {port} the port for HTTP and gRPC, such as
'target/release/polygrad serve --repository {models} --port {port}'. The server is judged by calls.py; ours also by
schemathesis, which sends requests that its OpenAPI file allows and others that it does not, and looks for answers of
500, by promtool, which reads its metrics, and, with text models, by OpenAI's client (openai_client.py), which also
asks a run of `finetune`. Fails if one of
them finds an error.
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import urllib.request

import models
import openai_client
import servers

HERE = pathlib.Path(__file__).parent
# The number of schemathesis's examples for each operation.
EXAMPLES = 200


def calls(server, name, metrics_url):
    command = [sys.executable, "-s", HERE / "calls.py", "--url", server.url, "--grpc-url", server.grpc_url]
    return subprocess.run([*command, "--metrics-url", metrics_url, "--server", name]).returncode == 0


def schemathesis(server):
    line = [sys.executable, "-s", "-m", "schemathesis.cli", "run", f"http://{server.url}/openapi.json"]
    line += ["--checks", "not_a_server_error", "--max-examples", str(EXAMPLES), "--seed", "1", "--suppress-health-check", "all"]
    # It leaves a folder in its working directory.
    return subprocess.run(line, cwd=tempfile.gettempdir()).returncode == 0


def openai(which, folder):
    """For models in a repository, and for a run of `finetune`."""
    openai_client.write(folder / "onnx")
    with servers.ours(which, folder) as server:
        fine = subprocess.run([sys.executable, "-s", HERE / "openai_client.py", server.url]).returncode == 0
    program, port = shlex.split(which)[0], 9400
    writer = f"{openai_client.MODEL}={openai_client.finetuned(program, folder)}"
    reader = f"{openai_client.READER}={folder / 'onnx' / openai_client.READER / '1'}"
    with servers.Server([program, "serve", writer, reader, "--port", port], f"127.0.0.1:{port}") as server:
        return subprocess.run([sys.executable, "-s", HERE / "openai_client.py", server.url]).returncode == 0 and fine


def promtool(url):
    with urllib.request.urlopen(f"http://{url}/metrics") as answer:
        metrics = answer.read()
    found = subprocess.run([os.environ["PROMTOOL"], "check", "metrics"], input=metrics)
    print(f"promtool: {'nothing to say' if found.returncode == 0 else 'see above'} about {metrics.count(b'# TYPE')} metrics", flush=True)
    return found.returncode == 0


def main():
    (which,) = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="polygrad-judge-") as folder:
        folder = pathlib.Path(folder)
        models.write(folder, models.models())
        if which in ("triton", "mlserver"):
            with getattr(servers, which)(folder) as server:
                host, port = server.url.split(":")
                fine = [calls(server, which, f"{host}:{int(port) + 2}")]
        else:
            with servers.ours(which, folder) as server:
                fine = [calls(server, "", server.url), schemathesis(server), promtool(server.url)]
            fine.append(openai(which, folder / "writing"))
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
