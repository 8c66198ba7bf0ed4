"""Processes that train together, started by whatever MPI there is."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import polygrad

LAUNCHERS = [path for path in os.environ.get("POLYGRAD_MPI_LAUNCHERS", "").split(":") if path] or [
    shutil.which("mpirun")
]


def launched(launcher, code, tmp_path, count=2):
    if launcher is None or not os.path.exists(launcher):
        pytest.skip("there is no mpirun")
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    command = [launcher, "-n", str(count), sys.executable, tmp_path / "train.py"]
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    settings |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    # Beside a launcher of its own folder lies its library.
    libraries = Path(launcher).resolve().parents[1] / "lib"
    found = [libraries / name for name in ("libmpi.so.40", "libmpi_abi.so.1") if (libraries / name).exists()]
    settings |= {"POLYGRAD_MPI_LIBRARY": str(found[0])} if found else {}
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **settings})
    assert run.returncode == 0, run.stderr
    # Each process writes a file of its own: a launcher forwards long lines of two processes mixed.
    return [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_learn_as_one(launcher, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(48, 3)), y=rng.integers(2, size=48))
    code = f"""
        import json, numpy, polygrad
        group = polygrad.communicator.mpi(timeout=60)
        data = numpy.load({str(tmp_path / "data.npz")!r})
        model = polygrad.Model.mlp(3, 2)
        history = model.fit(data["x"], data["y"], epochs=3, batch_size=4, learning_rate=0.01, log_every=1,
                            out={str(tmp_path / "run")!r}, communicator=group)
        losses = [row["loss"] for row in history.rows]
        weights = model.state_dict()["0.weight"].ravel().tolist()
        with open(f"{{{str(tmp_path)!r}}}/rank-{{group.rank}}.json", "w") as file:
            json.dump(dict(rank=group.rank, size=group.size, losses=losses, weights=weights), file)
        group.barrier()
    """
    first, second = launched(launcher, code, tmp_path)
    assert (first["rank"], second["rank"], first["size"]) == (0, 1, 2)
    assert first["weights"] == second["weights"]
    data = np.load(tmp_path / "data.npz")
    alone = polygrad.Model.mlp(3, 2)
    history = alone.fit(data["x"], data["y"], epochs=3, batch_size=8, learning_rate=0.01, log_every=1)
    np.testing.assert_allclose(first["losses"], [row["loss"] for row in history.rows], rtol=1e-4)
    np.testing.assert_allclose(first["weights"], alone.state_dict()["0.weight"].ravel(), rtol=1e-4, atol=1e-6)
    loaded = polygrad.Model.load(tmp_path / "run").state_dict()["0.weight"].ravel()
    np.testing.assert_allclose(loaded, first["weights"], rtol=1e-6)


def test_without_a_launcher_there_is_one():
    code = "import polygrad; group = polygrad.communicator.mpi(timeout=30); print(group, group.size)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI", "PMI", "PRTE"))}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=clean)
    # With no MPI at all it is told.
    assert "(rank 0 of 1) 1" in run.stdout or "polygrad.Error" in run.stderr and "MPI" in run.stderr
