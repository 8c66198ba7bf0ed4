#!/bin/sh
# Processes by MPI, on this machine or on those of --hostfile: examples/launch/mpirun.sh [-n 2] [mpirun's options]
# Debian: apt install openmpi-bin. From root Open MPI wants --allow-run-as-root.

exec mpirun -n 2 "$@" "${POLYGRAD:-polygrad}" train cartpole --seed 1 --threads 1 --parallel mpi \
    --out "${RUN:-runs/mpirun}"
