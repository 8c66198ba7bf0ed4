"""Measures the processor time per generated token, and for reading a prompt, of a GGUF file with Polygrad and
llama.cpp, in turns, one thread.

    pip install xllamacpp
    cargo build --release --features text
    python3 scripts/speed_of_language_models.py FILE.gguf [--program target/release/polygrad] [--turns 3]

Texts of two lengths cancel the cost of loading. It also prints how fast a loop reads as many bytes as the file has.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import time

SHORT, LONG = "The river", "The river runs past the garden and under the old bridge, where the winter market sells bread. " * 20
FEW, MANY = 8, 72


def ours(program, file, prompt, tokens):
    """Seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    line = [program, "generate", file, "--backend", "cpu", "--threads", "1", "--temperature", "0"]
    subprocess.run(line + ["--prompt", prompt, "--tokens", str(tokens)], check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def llama_cpp(file):
    """The same for llama.cpp, and the number of tokens in a prompt."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.cache_ram_mib = file, 2048, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)

    def run(prompt, tokens):
        began = time.process_time()
        asked = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        answer = server.handle_completions(asked)
        seconds = time.process_time() - began
        return seconds, (json.loads(answer) if isinstance(answer, str) else answer)["timings"]["prompt_n"]

    run(SHORT, 2)
    return run


def read(file):
    """Bytes a second of the fastest of several sums over as many bytes."""
    import numpy as np

    numbers = np.ones(os.path.getsize(file) // 8, np.int64)
    times = []
    for _ in range(7):
        began = time.process_time()
        numbers.sum()
        times.append(time.process_time() - began)
    return numbers.nbytes / min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--program", default="target/release/polygrad")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    peer = llama_cpp(args.file)
    count = peer(LONG, 1)[1] - peer(SHORT, 1)[1]
    runs = {"polygrad": lambda *asked: ours(args.program, args.file, *asked), "llama.cpp": lambda *asked: peer(*asked)[0]}
    tokens, prompts = {name: [] for name in runs}, {name: [] for name in runs}
    for _ in range(args.turns):
        for name, run in runs.items():
            tokens[name].append((run(SHORT, MANY) - run(SHORT, FEW)) / (MANY - FEW))
            prompts[name].append(count / (run(LONG, 1) - run(SHORT, 1)))
    size = os.path.getsize(args.file)
    print(f"{args.file}: a loop reads {read(args.file) / 1e9:.1f} GB/s")
    for name in runs:
        token = statistics.median(tokens[name])
        rate = f"{token * 1e3:.1f} ms a token, {size / token / 1e9:.1f} GB/s of the file"
        print(f"{name:>10}: {rate}; a prompt of {count}: {statistics.median(prompts[name]):.0f} tokens/s")


if __name__ == "__main__":
    main()
