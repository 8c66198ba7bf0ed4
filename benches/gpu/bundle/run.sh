#!/bin/sh
# Proves Polygrad on this machine's graphics card and writes one report: sh run.sh [MINUTES [PART...]]
# MINUTES is 60 without it; PART is the beginning of parts' names, such as gemm or suite-cuda. PYTHON may name a Python with PyTorch or JAX.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
minutes=${1:-60}
[ $# -eq 0 ] || shift
work=$PWD/polygrad-report-$(date -u +%Y%m%d-%H%M%S)
mkdir "$work"
export POLYGRAD_DATA="$here/data" POLYGRAD_PEERS="$here/peers"
if [ -z "${XDG_RUNTIME_DIR:-}" ]; then
    # Some drivers of Vulkan want a folder of the user's own.
    XDG_RUNTIME_DIR=$work/runtime
    export XDG_RUNTIME_DIR
    mkdir -m 700 "$XDG_RUNTIME_DIR"
fi
program=$work/polygrad-gpu
gzip -dc "$here/bin/polygrad-gpu.gz" >"$program"
chmod +x "$program"
libraries=$("$program" libraries "$here" "$work")
eval "$libraries"
exec "$program" report "$here" "$work" "$minutes" "$@"
