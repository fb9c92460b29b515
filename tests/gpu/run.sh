#!/usr/bin/env bash
# What needs a GPU, in a few minutes; prints tokens per second beside those of the CPU. Arguments go to pytest.
# Runs in .venv, which it makes where there is none; with vllm installed there (pip install '.[openrlhf]') it tests the
# cluster's stack, too. PYTHON names an interpreter of another environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ -z "${PYTHON:-}" ]; then
    source examples/install.sh
    [ -x .venv/bin/python ] || install_once dev
    PYTHON=.venv/bin/python
fi
exec env -u PYTHONDONTWRITEBYTECODE "$PYTHON" -m pytest tests/gpu -m gpu -s "$@"
