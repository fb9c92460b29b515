"""A language model over single characters, small enough to learn within minutes on a CPU."""

import re
import string
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END, PAD = "<end>", "<pad>"
ALPHABET = string.ascii_letters + string.digits + string.punctuation + " \n"
# A conversation is its texts one after the other: the model continues the last one.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer(words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """One token per character of ASCII, plus an end token and padding, and one for each of some longer texts.

    Where two of `words` begin alike, the first one counts.
    """
    vocabulary = {token: place for place, token in enumerate([PAD, END, *ALPHABET, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*map(re.escape, words), "."])), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=CHAT_TEMPLATE
    )


def build_model(
    *,
    layers: int = 3,
    width: int = 128,
    heads: int = 4,
    window: int = 512,
    spread: float = 0.02,
    seed: int = 0,
    words: int = 0,
) -> LlamaForCausalLM:
    """A Llama with random weights of standard deviation `spread`: half a million parameters by default.

    `words` is how many tokens its tokenizer has beyond single characters.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(ALPHABET) + 2 + words,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=window,
        initializer_range=spread,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


def save(folder: Path, model: LlamaForCausalLM, words: Sequence[str] = ()) -> Path:
    """A Hugging Face folder with the model and its tokenizer."""
    model.save_pretrained(folder)
    build_tokenizer(words).save_pretrained(folder)
    return folder
