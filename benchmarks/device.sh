#!/usr/bin/env bash
# The contract suite and the table of `regard bench` on a CUDA device, through `torch` and `tiled`, in under five minutes.
# Where no device is at hand it says so and exits 0. PYTHON is the interpreter (default: the checkout's .venv).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

command -v "$python" >/dev/null || { echo "$python is missing: scripts/bootstrap test makes it, or set PYTHON" >&2; exit 2; }
devices=$("$python" -c 'import torch; print(torch.cuda.device_count())')
if [ "$devices" = 0 ]; then
  echo "no CUDA device at hand: nothing was checked and nothing was measured"
  exit 0
fi
PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" exec timeout 300 "$python" benchmarks/device.py "$@"
