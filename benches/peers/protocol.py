"""The common part of the Python peers: the initial numbers of a workload, and the protocol of `polygrad bench`.

A peer prints `peer NAME VERSION` when it is ready. It answers `case NAME` with `ok` or `no REASON`, and `run SAMPLES STEPS` with
`ok LOSS SECONDS...`, the loss of the last step (`-` where steps do not train) and the seconds per step of each sample.
"""

import os
import sys
import time
import traceback

import numpy as np

INPUT, TARGET, WEIGHTS = 1, 2, 3


def noise(count, seed):
    """Numbers from -1 to 1: the upper 24 bits of a linear congruential generator, as in benches/workloads/src/data.rs."""
    factor, step = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
    powers = np.cumprod(np.full(count, factor, np.uint64))
    sums = np.cumsum(np.concatenate([np.ones(1, np.uint64), powers[:-1]]))
    state = powers * np.uint64(seed) + step * sums
    return (state >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


def classes(count, of, seed):
    """Classes from 0 to `of - 1`."""
    return ((noise(count, seed) + np.float32(1)) * np.float32(0.4999) * np.float32(of)).astype(np.int64)


def weights(index, shape, scales):
    """The initial values of parameter `index`: noise within 1/sqrt(inputs); a vector is 1 if it scales, otherwise 0."""
    if len(shape) < 2:
        return np.full(shape, float(scales), np.float32)
    bound = np.float32(1) / np.sqrt(np.float32(np.prod(shape[1:])))
    return (noise(int(np.prod(shape)), WEIGHTS + index) * bound).reshape(shape)


def device():
    """The device on the command line: `cpu` or `cuda`."""
    return sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cpu"


def threads():
    """The number of threads on the command line."""
    return int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv else 1


def serve(name, make, finish=lambda: None, questions=sys.stdin, speaks=True):
    """Answers questions until the input ends, if it `speaks`. `make(case)` returns a step, or None if the case does not exist; a step returns the loss
    as a number, or None. The work of a step is complete when it returns or, if it is asynchronous, when `finish` returns."""
    # All other output goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1) if speaks else open(os.devnull, "w")
    os.dup2(2, 1)
    answers.write(f"peer {name}\n")
    step = None
    for line in questions:
        question, _, rest = line.strip().partition(" ")
        try:
            if question == "case":
                step = None
                step = make(rest)
                answers.write("ok\n" if step else f"no it has no {rest}\n")
            elif question == "run" and step:
                samples, steps = map(int, rest.split())
                times = []
                for _ in range(samples):
                    start = time.perf_counter()
                    for _ in range(steps):
                        loss = step()
                    finish()
                    times.append((time.perf_counter() - start) / steps)
                words = ["-" if loss is None else repr(float(loss)), *map(repr, times)]
                answers.write(f"ok {' '.join(words)}\n")
            else:
                answers.write(f"no {question} cannot be answered\n")
        except Exception as error:
            traceback.print_exc()
            answers.write(f"no {type(error).__name__}: {' '.join(str(error).split())[:300]}\n")
    # Some libraries crash when they are unloaded.
    os._exit(0)
