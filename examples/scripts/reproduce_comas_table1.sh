#!/usr/bin/env bash
# Table 1 of the CoMAS paper: Qwen2.5-3B-Instruct, untrained and trained by CoMAS and three others.
# SCALE=micro|smoke|paper bash examples/scripts/reproduce_comas_table1.sh (see reproduce.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/reproduce.sh"
TABLE=comas-table1

untrained Untrained Qwen/Qwen2.5-3B-Instruct
row SRLM qwen2.5-3b_srlm srlm 1
row MAPoRL qwen2.5-3b_maporl maporl
row TTRL qwen2.5-3b_ttrl ttrl 1
row CoMAS qwen2.5-3b_l4 comas
table
