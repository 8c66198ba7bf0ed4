"""The package as a whole."""

import pickle
import subprocess
import sys

import pytest

import polygrad


def test_importing_it_is_quick_and_brings_nothing_along():
    code = "import sys, time; t = time.process_time(); import polygrad; print(time.process_time() - t, *sys.modules)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    assert min(float(run.stdout.split()[0]) for run in runs) < 0.05
    assert not {"numpy", "gymnasium", "typing", "json"} & set(runs[0].stdout.split())


def test_errors_survive_pickle():
    error = pickle.loads(pickle.dumps(polygrad.ArgumentError("a text", "malformed data")))
    assert (type(error), str(error), error.kind) == (polygrad.ArgumentError, "a text", "malformed data")


def test_everything_has_a_docstring():
    for thing in [polygrad, polygrad.rl]:
        for name in thing.__all__:
            value = getattr(thing, name)
            assert value.__doc__, name
            members = vars(value) if isinstance(value, type) else {}
            for member, own in members.items():
                assert member.startswith("_") or not callable(own) or own.__doc__, f"{name}.{member}"


def test_the_stubs_are_right():
    pytest.importorskip("mypy")
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "polygrad", "--ignore-disjoint-bases"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
