"""One optimiser step of rows by OpenRLHF's own actor, loss and DeepSpeed strategy: `python openrlhf_update.py FILE`.

FILE is a pickle of {model: folder, dtype, arguments, samples, filled}; what it prints last is JSON of the loss and the
gradient norm before clipping. A process of its own, since it opens torch's one default process group.
"""

import json
import os
import pickle
import socket
import sys
from pathlib import Path
from typing import Any

from patches.cpu import activate_training


def update(job: dict[str, Any]) -> dict[str, float]:
    activate_training()
    from openrlhf.models import Actor
    from openrlhf.utils import get_strategy
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from marti_ext.cluster.actors import _PolicyTrainer
    from marti_ext.cluster.rows import experiences

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    args = job["arguments"]
    args.ds.param_dtype = job["dtype"]  # fp32 is no choice of the parser, but switches both half precisions off
    strategy = get_strategy(args)
    strategy.setup_distributed()
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[job["dtype"]]
    actor = Actor(AutoModelForCausalLM.from_pretrained(job["model"], dtype=dtype, attn_implementation="eager"))
    actor.packing_samples = False
    settings = {"optim": "adam", "muon": vars(args.actor.muon), "adam": vars(args.actor.adam)}
    settings |= {"lr_scheduler": "constant", "max_norm": args.actor.max_norm, "scheduler_steps": 1}
    model, optimizer, scheduler = strategy.prepare((actor, settings))
    trainer = _PolicyTrainer(
        strategy, model, None, optimizer, scheduler,
        micro_train_batch_size=args.train.micro_batch_size,
        tokenizer=AutoTokenizer.from_pretrained(job["model"]), vllm_engines=None, dataloader_pin_memory=False,
    )  # fmt: skip
    batch = args.train.batch_size if job["filled"] else 1
    rows, _ = experiences(job["samples"], batch_size=batch, ranks=1, end_token=1)
    for row in rows:
        # The old log-probs are the actor's own before the update, as OpenRLHF's experience maker takes them.
        row.action_log_probs = model(row.sequences, row.action_mask, row.attention_mask).detach()
        trainer.replay_buffer.append(row)
    status = trainer.ppo_train(0.0)
    return {"loss": float(status["policy_loss"]), "grad_norm": float(status["actor_grad_norm"])}


if __name__ == "__main__":
    print(json.dumps(update(pickle.loads(Path(sys.argv[1]).read_bytes()))))
