#!/usr/bin/env bash
# Table 9 of the CoMAS paper: two agents of one model, and of two.
# SCALE=micro|smoke|paper bash examples/scripts/reproduce_comas_table9.sh (see reproduce.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/reproduce.sh"
TABLE=comas-table9

row Homogeneous qwen2.5-3b_l2 comas 2
row Heterogeneous qwen2.5-3b_llama3.2-3b heterogeneous 2
table
