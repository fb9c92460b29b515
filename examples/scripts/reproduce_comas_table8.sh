#!/usr/bin/env bash
# Table 8 of the CoMAS paper: one, two and four agents.
# SCALE=micro|smoke|paper bash examples/scripts/reproduce_comas_table8.sh (see reproduce.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/reproduce.sh"
TABLE=comas-table8

row 'CoMAS, l = 1' qwen2.5-3b_l1 comas 1
row 'CoMAS, l = 2' qwen2.5-3b_l2 comas 2
row 'CoMAS, l = 4' qwen2.5-3b_l4 comas 4
table
