#!/usr/bin/env bash
# CoMAS: two agents of Qwen2.5-3B-Instruct, on 4 GPUs of 80 GB.
# Joins the Ray cluster of RAY_ADDRESS, if that is set; without, the run starts Ray here and ends it.
# Arguments go on to marti-ext: --dry-run, key.path=value ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PWD/.venv/bin:$PATH"
exec marti-ext train configs/comas/qwen2.5-3b_l2.yaml ${RAY_ADDRESS:+"cluster.address=$RAY_ADDRESS"} "$@"
