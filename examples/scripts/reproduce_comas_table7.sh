#!/usr/bin/env bash
# Table 7 of the CoMAS paper: CoMAS without evaluation and without scoring.
# SCALE=micro|smoke|paper bash examples/scripts/reproduce_comas_table7.sh (see reproduce.sh)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/reproduce.sh"
TABLE=comas-table7

untrained Untrained Qwen/Qwen2.5-3B-Instruct
row CoMAS qwen2.5-3b_l4 comas
row 'w/o Evaluation' qwen2.5-3b_without_evaluation no_evaluation
row 'w/o Scoring' qwen2.5-3b_without_scoring no_scoring
table
