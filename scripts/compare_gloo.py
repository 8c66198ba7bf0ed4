"""Times PyTorch's all-reduce over Gloo between two processes on this machine, for comparison with
backends/torch/benches/gloo.rs.

    eval "$(cargo xtask setup pytorch)"
    python3 scripts/compare_gloo.py
"""

import os
import socket
import statistics
import subprocess
import sys
import time

# Numbers of f32 elements, and repetitions.
SIZES = [(1, 5000), (750_000, 500)]


def rank():
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for length, times in SIZES:
        values = torch.ones(length)

        def reduce():
            # Reset, so that repeated sums do not grow.
            values.fill_(1)
            begun = time.perf_counter()
            distributed.all_reduce(values)
            return (time.perf_counter() - begun) * 1e6

        for _ in range(times // 10):
            reduce()
        distributed.barrier()
        took = [reduce() for _ in range(times)]
        if distributed.get_rank() == 0:
            median, least = statistics.median(took), min(took)
            print(f"PyTorch {torch.__version__} {length:>7} f32: median {median:8.1f} us, least {least:8.1f} us")
    distributed.destroy_process_group()


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [subprocess.Popen([sys.executable, __file__], env={**shared, "RANK": rank}) for rank in ("0", "1")]
    sys.exit(max(process.wait() for process in ranks))


if __name__ == "__main__":
    rank() if "RANK" in os.environ else main()
