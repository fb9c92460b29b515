"""Conversations to prompt ids, over four shapes of chat template, each on a small byte-level tokenizer."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from marti_ext.backends.chat import ChatTemplate
from marti_ext.errors import UserError
from marti_ext.thinking import strip_thinking
from marti_ext.types import Message

# Puts a BOS of its own, has no system role, insists on turns by turns, trims, and calls the assistant "model".
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
# A BOS before every user turn, the system text inside the first one, turns by turns.
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{% set words = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' if loop.first and system else '' %}"
    "{{ bos_token + '[INST] ' + words + message['content'] | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}"
    "{% endfor %}"
)
# SmolLM2: a system message of its own where there is none; nothing before text.
CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Qwen3: thinking of earlier turns is cut out, and an argument switches it off.
QWEN3 = (
    "{% for message in messages %}"
    "{% set words = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in words %}"
    "{% set words = words.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + words + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% endif %}"
)


@dataclass(frozen=True)
class Family:
    template: str
    special: tuple[str, ...]  # bos (or "") and eos first
    plain: tuple[str, ...] = ()  # added tokens that are not marked special
    adds_bos: bool = False  # before every text


FAMILIES = {
    "gemma": Family(GEMMA, ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), adds_bos=True),
    "llama2": Family(LLAMA2, ("<s>", "</s>"), ("[INST]", "[/INST]"), adds_bos=True),
    "chatml": Family(CHATML, ("<|im_start|>", "<|im_end|>", "<|endoftext|>")),
    "qwen3": Family(
        QWEN3, ("", "<|im_end|>", "<|im_start|>", "<|endoftext|>"), ("<think>", "</think>", "<tool_call>")
    ),
}
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def tokenizer_of(family: str, *, added: tuple[str, ...] = (), template: str = "") -> PreTrainedTokenizerFast:
    """A token per byte, and the family's control tokens."""
    kind = FAMILIES[family]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in kind.special if name])
    tokenizer.add_tokens([AddedToken(name, special=False) for name in (*kind.plain, *added)])
    bos, eos, *others = kind.special
    if kind.adds_bos:
        place = tokenizer.token_to_id(bos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, place)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos or None,
        eos_token=eos,
        additional_special_tokens=others,
        chat_template=template or kind.template,
        clean_up_tokenization_spaces=False,
    )


def direct_ids(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> list[int]:
    ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    return list(ids)


def shown(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def control_ids(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[int]:
    """The control tokens of a prompt in their order: every added token but whitespace."""
    control = {place for name, place in tokenizer.get_added_vocab().items() if name.strip()}
    return [i for i in ids if i in control]


def user(text: str, name: str = "") -> Message:
    return Message("user", text, name)


def said(text: str, name: str = "") -> Message:
    return Message("assistant", text, name)


@EVERY_FAMILY
def test_a_plain_conversation_has_the_ids_of_direct_templating(family: str) -> None:
    tokenizer = tokenizer_of(family)
    template = ChatTemplate(tokenizer)
    texts = ["What is 6 * 7?", "42.", "Are you sure?\n\nThink  twice; it's a naïve 问题."]
    for length in (1, 3):
        roles = ["user", "assistant", "user"][:length]
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        rendered = template.render([Message(m["role"], m["content"]) for m in messages])  # type: ignore[arg-type]
        assert rendered == direct_ids(tokenizer, messages)


@pytest.mark.parametrize("family", ["llama2", "chatml", "qwen3"])
def test_a_system_message_has_the_ids_of_direct_templating(family: str) -> None:
    tokenizer = tokenizer_of(family)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 * 7?"}]
    rendered = ChatTemplate(tokenizer).render([Message("system", "Be brief."), user("6 * 7?")])
    assert rendered == direct_ids(tokenizer, messages)


@pytest.mark.parametrize("template", ["without", "with", "with two"])
def test_a_tokenizer_that_puts_a_bos_before_text_gives_exactly_one(template: str) -> None:
    body = GEMMA.removeprefix("{{ bos_token }}")
    bos = {"without": "", "with": "{{ bos_token }}", "with two": "{{ bos_token }}{{ bos_token }}"}[template]
    tokenizer = tokenizer_of("gemma", template=bos + body)
    ids = ChatTemplate(tokenizer).render([user("hello")])
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1


def test_a_tokenizer_that_puts_nothing_before_text_leaves_the_start_to_the_template() -> None:
    # ChatML's BOS is <|im_start|>: it opens every turn, and a second one at the start would be an empty turn.
    tokenizer = tokenizer_of("chatml")
    ids = ChatTemplate(tokenizer).render([user("hello")])
    assert ids[0] == tokenizer.bos_token_id
    assert ids[1] != tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 3  # system, user, assistant


def test_system_text_goes_into_the_first_user_turn_where_a_template_refuses_it() -> None:
    tokenizer = tokenizer_of("gemma")
    conversation = [Message("system", "Be brief."), user("6 * 7?"), said("42"), user("Sure?")]
    assert shown(tokenizer, ChatTemplate(tokenizer).render(conversation)) == (
        "<bos><start_of_turn>user\nBe brief.\n\n6 * 7?<end_of_turn>\n"
        "<start_of_turn>model\n42<end_of_turn>\n"
        "<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\n"
    )


def test_system_text_goes_into_the_first_user_turn_where_a_template_drops_it() -> None:
    drops = CHATML.replace(
        "{{ '<|im_start|>' + message", "{{ '' if message['role'] == 'system' else '<|im_start|>' + message"
    )
    tokenizer = tokenizer_of("chatml", template=drops)
    template = ChatTemplate(tokenizer)
    assert template.normalise([Message("system", "Be brief."), user("6 * 7?")]) == [user("Be brief.\n\n6 * 7?")]


@EVERY_FAMILY
def test_a_system_message_alone_is_a_conversation(family: str) -> None:
    tokenizer = tokenizer_of(family)
    assert "Be brief." in shown(tokenizer, ChatTemplate(tokenizer).render([Message("system", "Be brief.")]))


def test_neighbours_of_one_role_are_merged() -> None:
    template = ChatTemplate(tokenizer_of("gemma"))
    assert template.normalise([user("one"), user("two")]) == [user("one\n\ntwo")]
    assert template.normalise([user("one"), said("a"), said("b"), user("two")]) == [
        user("one"),
        said("a\n\nb"),
        user("two"),
    ]


def test_words_of_other_participants_are_the_users_with_their_names() -> None:
    template = ChatTemplate(tokenizer_of("gemma"))
    heard = [user("6 * 7?"), said("42", "ann"), said("I say 41.", "bob")]
    assert template.normalise(heard) == [user("6 * 7?\n\nann: 42\n\nbob: I say 41.")]


def test_the_last_turn_is_the_users_whoever_spoke_last() -> None:
    template = ChatTemplate(tokenizer_of("llama2"))
    assert template.normalise([user("6 * 7?"), said("42")]) == [user("6 * 7?\n\n42")]
    assert template.normalise([said("42"), user("Sure?")]) == [user("42\n\nSure?")]


@EVERY_FAMILY
@given(
    st.lists(
        st.builds(
            Message,
            st.sampled_from(["system", "user", "assistant"]),
            st.integers(0, 999).map("<{}>".format),
            st.sampled_from(["", "", "ann", "bob"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_conversation_is_rendered_without_loss(family: str, messages: list[Message]) -> None:
    tokenizer = tokenizer_of(family)
    template = ChatTemplate(tokenizer)
    turns = template.normalise(messages)
    spoken = turns[1:] if turns[0].role == "system" else turns
    assert [turn.role for turn in spoken] == ["user", "assistant"] * (len(spoken) // 2) + ["user"]
    prompt = shown(tokenizer, template.render(messages))
    for message in messages:
        label = f"{message.name}: " if message.name and message.role != "system" else ""
        assert prompt.count(label + message.content) >= messages.count(message)


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(ValueError, match="empty conversation"):
        ChatTemplate(tokenizer_of("chatml")).render([])


def test_a_tokenizer_without_a_template_is_refused_with_what_to_do() -> None:
    tokenizer = tokenizer_of("chatml")
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"no chat template: .* add chat_template\.jinja"):
        ChatTemplate(tokenizer)


@EVERY_FAMILY
def test_text_that_spells_control_tokens_stays_text(family: str) -> None:
    tokenizer = tokenizer_of(family)
    names = [name for name in (*FAMILIES[family].special, *FAMILIES[family].plain) if name]
    text = "a" + "b".join(names) + "c"
    prompt = ChatTemplate(tokenizer).render([user(text)])
    assert text in shown(tokenizer, prompt)
    assert control_ids(tokenizer, prompt) == control_ids(tokenizer, ChatTemplate(tokenizer).render([user("hello")]))


# Pieces of control tokens, whole ones, and the private-use characters that could stand in for them.
PIECES = [
    *(name for kind in FAMILIES.values() for name in (*kind.special, *kind.plain) if name),
    *("<", "|", ">", "im_", "<|im_", "end|>", "</", "think", "[", "INST]", "\n", " ", "x", "é", "\U00100000"),
    *("\U0010f000", "\U0010f001", "\U0010fffd", "\U00100001"),
]


@EVERY_FAMILY
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=4, max_size=4))
def test_control_tokens_of_a_prompt_do_not_depend_on_what_agents_say(family: str, texts: list[str]) -> None:
    tokenizer = tokenizer_of(family)
    template = ChatTemplate(tokenizer)

    def prompt(system: str, *spoken: str) -> list[int]:
        first, own, last = spoken
        return template.render([Message("system", system), user(first), said(own), user(last, "bob")])

    ids = prompt(*texts)
    assert control_ids(tokenizer, ids) == control_ids(tokenizer, prompt("w", "x", "y", "z"))
    whole = shown(tokenizer, ids)
    assert all(text.strip() in whole for text in texts)


@EVERY_FAMILY
@given(st.text(max_size=40))
def test_a_text_without_control_tokens_has_the_ids_of_direct_templating(family: str, text: str) -> None:
    tokenizer = tokenizer_of(family)
    names = [name for name in (*FAMILIES[family].special, *FAMILIES[family].plain) if name]
    if not any(name in text for name in names):
        assert ChatTemplate(tokenizer).render([user(text)]) == direct_ids(
            tokenizer, [{"role": "user", "content": text}]
        )


def test_added_tokens_that_are_whitespace_or_words_are_used_as_ever() -> None:
    # Code models add runs of spaces and tabs; no control tokens, so texts may hold them.
    tokenizer = tokenizer_of("chatml", added=("    ", "\t\t", "\n\n", "hello"))
    text = "def f():\n\n    return\t\thello"
    ids = ChatTemplate(tokenizer).render([user(text)])
    assert ids == direct_ids(tokenizer, [{"role": "user", "content": text}])
    assert {tokenizer.convert_tokens_to_ids(token) for token in ("    ", "\t\t", "\n\n", "hello")} <= set(ids)


def test_template_arguments_reach_the_template() -> None:
    tokenizer = tokenizer_of("qwen3")
    plain = shown(tokenizer, ChatTemplate(tokenizer).render([user("hi")]))
    quiet = shown(tokenizer, ChatTemplate(tokenizer, {"enable_thinking": False}).render([user("hi")]))
    assert plain.endswith("<|im_start|>assistant\n")
    assert quiet == plain + "<think>\n\n</think>\n\n"


def test_earlier_turns_keep_their_place_when_a_conversation_goes_on() -> None:
    # A prompt is a prefix of the next one up to the reply: what was seen stays as it was.
    tokenizer = tokenizer_of("qwen3")
    template = ChatTemplate(tokenizer)
    first = template.render([user("6 * 7?")])
    reply = strip_thinking("<think>six sevens</think>\n42")
    second = template.render([user("6 * 7?"), said(reply), user("Sure?")])
    assert second[: len(first)] == first
    assert shown(tokenizer, second[len(first) :]).startswith("42<|im_end|>\n")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<think>6 * 7</think>42", "42"),
        ("<think>6</think>4<think>7</think>2", "42"),
        ("6 * 7 is\n</think>\n\n42\n", "42"),  # the prompt had opened it
        ("a</think>b</think>42", "42"),
        ("<think>6 * 7 is", ""),  # never closed: nothing was said
        ("42 <think>or is it", "42"),
        ("<think></think>", ""),
        ("42", "42"),
        ("a < b > c", "a < b > c"),
        ("", ""),
    ],
)
def test_thinking_is_not_said(reply: str, text: str) -> None:
    assert strip_thinking(reply) == text
