#!/usr/bin/env bash
# Table 5 of the CoMAS paper: Qwen2.5-7B-Instruct, untrained and trained by CoMAS.
# SCALE=micro|smoke|paper bash examples/scripts/reproduce_comas_table5.sh (see reproduce.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/reproduce.sh"
TABLE=comas-table5

untrained Untrained Qwen/Qwen2.5-7B-Instruct
row CoMAS qwen2.5-7b_l4 larger
table
