#!/bin/sh
# Processes by Gloo, started by PyTorch's launcher (pip install torch): examples/launch/torchrun.sh [torchrun's options]
# It starts all anew when one is lost, and they go on from the last checkpoint.

exec torchrun --no-python --nproc-per-node 2 --max-restarts 3 "$@" "${POLYGRAD:-polygrad}" \
    train cartpole --seed 1 --threads 1 --parallel gloo --out "${RUN:-runs/torchrun}"
