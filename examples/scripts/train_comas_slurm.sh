#!/usr/bin/env bash
#SBATCH --job-name=comas
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
# CoMAS over several nodes: sbatch [SLURM options] examples/scripts/train_comas_slurm.sh [CONFIG [key.path=value ...]]
# Starts a Ray head and workers on the allocated nodes, trains from the head, and ends them all. Submitted again, it
# goes on from the last checkpoint; run_dir and the models have to be on a file system that all nodes see.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
PATH="$PWD/.venv/bin:$PATH"
config=configs/comas/qwen2.5-3b_l4.yaml
if [ $# -gt 0 ]; then
    config=$1
    shift
fi

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
on_head=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head")
ip=$("${on_head[@]}" hostname --ip-address | awk '{ print $1 }')
address=$ip:${RAY_PORT:-6379}
trap 'jobs -p | xargs -r kill' EXIT

"${on_head[@]}" ray start --head --node-ip-address="$ip" --port="${address##*:}" --block &
sleep 20 # a worker that finds no head gives up
if [ "${#nodes[@]}" -gt 1 ]; then
    srun --overlap --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="$head" \
        ray start --address="$address" --block &
fi
for _ in $(seq 60); do
    found=$("${on_head[@]}" ray status --address="$address" | grep -c ' node_' || true)
    [ "$found" -ge "${#nodes[@]}" ] && break
    sleep 5
done

"${on_head[@]}" marti-ext train "$config" cluster.address="$address" "$@"
