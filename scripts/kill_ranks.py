"""Kills processes of trainings on several processes at random moments, and checks how the runs end.

    python3 scripts/kill_ranks.py gloo target/release/polygrad --kills 20
    python3 scripts/kill_ranks.py ulfm target/release/polygrad --kills 20 --mpirun mpirun
    python3 scripts/kill_ranks.py ulfm target/release/polygrad --kills 20 --mpirun mpirun --shard-optimizer
    python3 scripts/kill_ranks.py ulfm target/release/polygrad --kills 20 --mpirun mpirun --ppo

gloo: torchrun restarts all processes, and the model must equal, byte for byte, that of an undisturbed run. torchrun
comes with PyTorch. ulfm: Open MPI 5 is started with --with-ft ulfm, and the surviving processes must continue within 5
s and finish the run. With --shard-optimizer the moments are sharded, and with --ppo a policy learns in CartPole: both
return to the last checkpoint.
"""

import argparse
import contextlib
import json
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

# The surviving processes must continue within this many seconds.
WITHIN = 5.0
# Environment steps in an iteration of three processes. An iteration that would exceed the total is not begun.
ITERATION = 768
HOUSES = pathlib.Path(__file__).parent.parent / "data/houses/houses.csv"


def children(name):
    """The processes that run the program, by the ranks in their environment variables."""
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


def is_progress(line):
    """Whether a line reports training progress."""
    return ("epoch" in line or "step" in line) and "/" in line and "loss" in line


def start(args, program, out):
    command = launcher(args) + [program, "train"]
    if args.ppo:
        command += ["cartpole", "--total-steps", str(args.steps)]
    else:
        command += ["table", str(args.table), "--target", args.target, "--epochs", str(args.epochs)]
    if args.shard_optimizer:
        command += ["--shard-optimizer"]
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


def has_ended(args, out):
    """Whether a run's checkpoint is its final one."""
    with (out / "checkpoint.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    record = json.loads(header["__metadata__"]["polygrad"])["config"]
    if args.ppo:
        return record["ppo"]["steps"] > args.steps - ITERATION
    return record["loader"]["epoch"] >= args.epochs


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
    parser.add_argument("--steps", type=int, default=200_000, help="of the environments, with --ppo")
    parser.add_argument("--shard-optimizer", action="store_true")
    parser.add_argument("--ppo", action="store_true")
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
    epochs = [at for at, line in lines if is_progress(line)]
    first, last = epochs[0] - begun, epochs[-1] - begun
    print(f"undisturbed: {time.monotonic() - begun:.1f} s, training from {first:.1f} s to {last:.1f} s")
    failures, slowest, missed, recoveries = [], 0.0, 0, 0
    for kill in range(args.kills):
        if kill and kill % 10 == 0:
            print(f"{kill - missed} kills so far, {len(failures)} failures", flush=True)
        out = folder / f"run{kill}"
        begun = time.monotonic()
        process, lines, reader = start(args, program, out)
        if args.engine == "ulfm":
            # MPI does not start without one of its processes.
            while process.poll() is None and not any(is_progress(line) for _, line in lines):
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, last - first))
        else:
            time.sleep(chance.uniform(0.3 * first, last))
        ranks = children(program)
        killed = None
        if ranks:
            rank = chance.choice(sorted(ranks))
            # It may have exited meanwhile.
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
            if told:
                slowest = max(slowest, told[0] - killed)
            if not has_ended(args, out):
                problem = "those who are left did not end the run"
            elif told and told[0] - killed > WITHIN:
                problem = f"those who are left went on after {told[0] - killed:.1f} s"
            recoveries += bool(told)
        if problem:
            failures.append(f"kill {kill} of rank {rank if killed else '-'}: {problem}")
            print(failures[-1], "\n".join(line for _, line in lines[-15:]), sep="\n")
        shutil.rmtree(out, ignore_errors=True)
    text = f"{args.kills - missed} kills ({missed} came too late), {len(failures)} failures"
    if args.engine == "ulfm":
        text += f"; {recoveries} times those who were left went on, within {slowest:.2f} s"
    print(text)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(failures))


main()
