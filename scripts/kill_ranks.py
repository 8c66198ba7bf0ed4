"""Kills processes of trainings that several of them share, at random moments, and looks at what becomes of the runs.

    python3 scripts/kill_ranks.py gloo target/release/polygrad --kills 20
    python3 scripts/kill_ranks.py ulfm target/release/polygrad --kills 20 --mpirun mpirun

gloo: torchrun starts all of them anew, and the model has to be, byte for byte, that of a run that nobody disturbed. torchrun comes with PyTorch.
ulfm: Open MPI 5 is started with --with-ft ulfm, those who are left have to go on within 5 s, and to end the run.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HOUSES = pathlib.Path(__file__).parent.parent / "data/houses/houses.csv"


def children(name):
    """The processes that run the program, by their ranks in the environment."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if os.path.realpath(command[0]) != name.encode():
                continue
            environment = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
        except (OSError, ValueError):
            continue
        rank = environment.get(b"RANK") or environment.get(b"OMPI_COMM_WORLD_RANK")
        if rank:
            found[int(rank)] = int(entry.name)
    return found


def launcher(args):
    if args.engine == "gloo":
        return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2", "--max-restarts", "5"]
    return [args.mpirun, "--allow-run-as-root", "--oversubscribe", "--with-ft", "ulfm", "-n", "3"]


def start(args, program, out):
    command = launcher(args) + [program, "train", "table", str(args.table), "--target", args.target, "--epochs", str(args.epochs)]
    command += ["--threads", "1", "--seed", "3", "--out", str(out)]
    command += ["--parallel", "gloo:timeout=30" if args.engine == "gloo" else "mpi:timeout=30"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    lines = []

    def read():
        for line in process.stdout:
            lines.append((time.monotonic(), line.rstrip()))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return process, lines, reader


def finish(process, lines, reader, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "it hangs"
    reader.join(10)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engine", choices=["gloo", "ulfm"])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--table", default=HOUSES)
    parser.add_argument("--target", default="price")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    program = os.path.realpath(args.program)
    folder = pathlib.Path(tempfile.mkdtemp())
    begun = time.monotonic()
    process, lines, reader = start(args, program, folder / "whole")
    if finish(process, lines, reader, 300) or process.returncode:
        sys.exit("\n".join(line for _, line in lines) + "\nthe undisturbed run has failed")
    whole = (folder / "whole/model.safetensors").read_bytes()
    epochs = [at for at, line in lines if "epoch" in line and "/" in line]
    first, last = epochs[0] - begun, epochs[-1] - begun
    print(f"undisturbed: {time.monotonic() - begun:.1f} s, training from {first:.1f} s to {last:.1f} s")
    failures, slowest, missed = [], 0.0, 0
    for kill in range(args.kills):
        if kill and kill % 10 == 0:
            print(f"{kill - missed} kills so far, {len(failures)} failures", flush=True)
        out = folder / f"run{kill}"
        begun = time.monotonic()
        process, lines, reader = start(args, program, out)
        if args.engine == "ulfm":
            # MPI without one of its processes does not even start.
            while process.poll() is None and not any("epoch" in line and "/" in line for _, line in lines):
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, last - first))
        else:
            time.sleep(chance.uniform(0.3 * first, last))
        ranks = children(program)
        killed = None
        if ranks:
            rank = chance.choice(sorted(ranks))
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(ranks[rank], signal.SIGKILL)
                killed = time.monotonic()
        missed += killed is None
        problem = finish(process, lines, reader, 200)
        if problem is None and not (out / "model.safetensors").exists():
            problem = "there is no model"
        if problem is None and args.engine == "gloo" and (out / "model.safetensors").read_bytes() != whole:
            problem = "the model is another one"
        if problem is None and args.engine == "ulfm" and killed:
            told = [at for at, line in lines if "processes are left" in line]
            ended = any(f"epoch {args.epochs}/{args.epochs}" in line for _, line in lines)
            if told:
                slowest = max(slowest, told[0] - killed)
            if not ended:
                problem = "those who are left did not end the run"
        if problem:
            failures.append(f"kill {kill} of rank {rank if killed else '-'}: {problem}")
            print(failures[-1], "\n".join(line for _, line in lines[-15:]), sep="\n")
        shutil.rmtree(out, ignore_errors=True)
    text = f"{args.kills - missed} kills ({missed} came too late), {len(failures)} failures"
    if args.engine == "ulfm":
        text += f"; those who were left went on within {slowest:.2f} s"
    print(text)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(failures))


main()
