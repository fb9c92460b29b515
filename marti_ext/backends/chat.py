"""From a conversation to the prompt ids that a model reads: the tokenizer's own chat template, in one place."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from marti_ext.errors import UserError
from marti_ext.types import Message

# Stand-ins for control tokens that a text spells out: characters that texts have little use for (a private-use plane).
_STAND_INS = [chr(code) for code in range(0x100000, 0x10FFFE)]
# What apply_chat_template takes for itself.
RESERVED = {
    "conversation",
    "tokenize",
    "add_generation_prompt",
    "continue_final_message",
    "return_dict",
    "chat_template",
}
_TAG = re.compile(r"[<\[].+[>\]]")  # <think>, [INST]: control tokens too, though some tokenizers do not mark them


class ChatTemplate:
    """Renders conversations by the tokenizer's template. `arguments` go to the template, for example
    `{"enable_thinking": False}`.

    - A system message is folded into the first user turn where the template has no place for it.
    - Neighbours of one role are merged, the words of other participants labelled; the last turn is the user's.
    - Text that spells a control token stays text.
    - At the start there is exactly one BOS if the tokenizer puts one before text, else what the template puts there.

    Raises UserError if the tokenizer has no template, or one that fails.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: use an instruction-tuned model or "
                "add chat_template.jinja to its folder"
            )
        self._tokenizer = tokenizer
        self._arguments = dict(arguments or {})
        if reserved := RESERVED & self._arguments.keys():
            raise UserError(f"template argument {min(reserved)!r} is not the template's to take: remove it")
        tags = {name for name in tokenizer.get_added_vocab() if _TAG.fullmatch(name)}
        names = {name for name in tags.union(tokenizer.all_special_tokens) if len(name) > 1}
        # Longest first: a name that begins with another is replaced whole.
        self._control_tokens = sorted(names, key=lambda name: (-len(name), name))
        try:
            self.render([Message("user", "x")])
        except (ValueError, TypeError, TemplateError) as error:
            raise UserError(
                f"the chat template of {tokenizer.name_or_path!r} fails on a plain message: {error}"
            ) from error

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt ids (P,) up to and including the opening of the assistant's turn."""
        turns = self.normalise(messages)
        spelled = self._spelled(turns)
        for stand_in, name in spelled.items():
            turns = [replace(turn, content=turn.content.replace(name, stand_in)) for turn in turns]
        ids = self._encode(self._render_text(turns), spelled)
        bos = self._tokenizer.bos_token_id
        if self._adds_bos:
            while ids[:1] == [bos]:
                ids = ids[1:]
            ids = [bos, *ids]
        return ids

    def normalise(self, messages: Sequence[Message]) -> list[Message]:
        """The conversation as the template can take it: [system], then user and assistant by turns, user last.

        Raises ValueError for an empty conversation.
        """
        if not messages:
            raise ValueError("an empty conversation has no reply")
        system = [m.content for m in messages if m.role == "system"]
        turns: list[Message] = []
        spoken = [m for m in messages if m.role != "system"]
        for place, message in enumerate(spoken):
            # Words of others, and an opening or closing of one's own, reach the model as the user's.
            own = message.role == "assistant" and not message.name and 0 < place < len(spoken) - 1
            text = message.labelled
            role = "assistant" if own else "user"
            if turns and turns[-1].role == role:
                turns[-1] = Message(turns[-1].role, f"{turns[-1].content}\n\n{text}")
            else:
                turns.append(Message("assistant" if own else "user", text))
        if not system:
            return turns
        instruction = "\n\n".join(system)
        if self._has_system_role:
            return [Message("system", instruction), *(turns or [Message("user", "")])]
        first, *rest = turns or [Message("user", "")]
        return [Message("user", f"{instruction}\n\n{first.content}".strip()), *rest]

    @cached_property
    def _has_system_role(self) -> bool:
        probe = "systemprobe"
        try:
            return probe in self._render_text([Message("system", probe), Message("user", "x")])
        except TemplateError:
            return False

    @cached_property
    def _adds_bos(self) -> bool:
        bos = self._tokenizer.bos_token_id
        return bos is not None and self._tokenizer("x").input_ids[:1] == [bos]

    def _render_text(self, messages: Sequence[Message]) -> str:
        text = self._tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in messages],
            tokenize=False,
            add_generation_prompt=True,
            **self._arguments,
        )
        assert isinstance(text, str)
        return text

    def _spelled(self, turns: Sequence[Message]) -> dict[str, str]:
        """{a character that no turn uses: a control token that some turn spells out}, the longest first."""
        text = "\0".join(turn.content for turn in turns)
        names = [name for name in self._control_tokens if name in text]
        used = set(text)
        return dict(zip((c for c in _STAND_INS if c not in used), names, strict=False)) if names else {}

    def _encode(self, text: str, spelled: Mapping[str, str]) -> list[int]:
        """Token ids of a rendered prompt, where a stand-in becomes the ids of the letters of what it stands for."""
        if not spelled:
            return self._ids(text)
        ids: list[int] = []
        for piece in re.split(f"([{''.join(spelled)}])", text):
            name = spelled.get(piece)
            # Cut after its first letter the name is no longer a control token.
            ids += self._ids(piece) if name is None else self._ids(name[:1]) + self._ids(name[1:])
        return ids

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids) if text else []
