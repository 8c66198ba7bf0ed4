"""Calls an inference server with independent clients, and reports whether each call passes.

    python scripts/serve/calls.py --url HOST:PORT --grpc-url HOST:PORT [--metrics-url HOST:PORT] [--server NAME] [--only PATTERN]

The server must have the models that models.py writes:

    identity_{bool,uint8,int32,int64,fp16,bf16,fp32,fp64}   x[batch, n] → y[batch, n] of that dtype
    add_sub      a[batch, n], b[batch, n] → sum, difference, all INT32
    row_sum      x[batch, 4] → y[batch, 1], FP32
    scaled       x[batch, n] → y[batch, n], FP32; version 1 is x, version 2 is 2 x
    accumulate   x[batch, 1] → y[batch, 1], FP32: the sum of a sequence so far

Prints a line for each call that does not pass, a table of counts, and fails if a call fails. Features that a server
does not offer are listed in lacks.txt under its --server: such a call is `not offered` while it fails, and is a failure
if it passes.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import multiprocessing
import pathlib
import sys

import registry

HERE = pathlib.Path(__file__).parent
KINDS = ["pass", "fail", "not offered"]
MODULES = ["calls_models", "calls_requests", "calls_kserve", "calls_wire"]


@dataclasses.dataclass
class Asked:
    """The server's addresses, and the selected calls."""

    url: str
    grpc_url: str
    metrics_url: str
    only: str

    def wants(self, name):
        return fnmatch.fnmatchcase(name, self.only)


def lacks(server):
    """The reason by pattern of calls that a server does not offer."""
    found, name, reason = {}, None, None
    for line in (HERE / "lacks.txt").read_text().splitlines():
        if line.startswith(" "):
            if name == server:
                found[line.strip()] = reason
        elif line and not line.startswith("#"):
            name, reason = line.split(": ", 1)
    return found


def verdicts(asked):
    """The results of all modules, each in its own process."""
    for module in MODULES:
        alone = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=alone) as process:
            yield from process.submit(registry.run, module, asked).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="127.0.0.1:8000")
    parser.add_argument("--grpc-url", default="127.0.0.1:8000")
    parser.add_argument("--metrics-url", help="if it is another one")
    parser.add_argument("--server", default="", help="whose lacks are known")
    parser.add_argument("--only", default="*", help="calls of this pattern")
    given = parser.parse_args()
    asked = Asked(given.url, given.grpc_url, given.metrics_url or given.url, given.only)
    known, counts = lacks(given.server), {}
    for name, why in verdicts(asked):
        reason = next((reason for pattern, reason in known.items() if fnmatch.fnmatchcase(name, pattern)), None)
        kind = ("fail" if reason else "pass") if why is None else ("not offered" if reason else "fail")
        group = counts.setdefault(name.split(":")[0], dict.fromkeys(KINDS, 0))
        group[kind] += 1
        if kind == "fail":
            print(f"fail         {name}: {why or f'passes, though lacks.txt says: {reason}'}", flush=True)
        elif kind == "not offered":
            print(f"not offered  {name}: {reason}", flush=True)
    print(f"\n| calls by | {' | '.join(KINDS)} |\n|---|---|---|---|")
    totals = [sum(group[kind] for group in counts.values()) for kind in KINDS]
    for name, group in counts.items():
        print(f"| {name} | {' | '.join(str(group[kind]) for kind in KINDS)} |")
    print(f"| all {sum(totals)} | {' | '.join(map(str, totals))} |")
    sys.exit(totals[1] > 0 or sum(totals) == 0)


if __name__ == "__main__":
    main()
