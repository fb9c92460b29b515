"""Code that comes with a model runs only where the config says so.

Why: OpenRLHF passes trust_remote_code=True wherever it loads a config, a tokenizer or weights.
Made for: openrlhf 0.11.2. Can go: once it takes the answer from its arguments.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import transformers

LOADERS = ("AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoModelForCausalLM", "AutoModelForImageTextToText")


@contextmanager
def remote_code(*, trusted: bool) -> Iterator[None]:
    """Within the block transformers' Auto classes trust a model's code, or do not, whatever their caller says."""
    loaders = [getattr(transformers, name) for name in LOADERS]
    originals = [vars(loader).get("from_pretrained") for loader in loaders]
    for loader in loaders:
        loader.from_pretrained = _insisting(loader.from_pretrained, trusted)
    try:
        yield
    finally:
        for loader, original in zip(loaders, originals, strict=True):
            if original is None:
                del loader.from_pretrained
            else:
                loader.from_pretrained = original


def _insisting(load: Any, trusted: bool) -> Any:
    def from_pretrained(*arguments: Any, **options: Any) -> Any:
        return load(*arguments, **{**options, "trust_remote_code": trusted})

    return from_pretrained
