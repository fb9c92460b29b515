"""Programs out of replies: one test for every trap, then texts that nobody would send."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.types import Task
from marti_ext.verifiers.code import CodeVerifier
from marti_ext.verifiers.code.blocks import code_blocks
from marti_ext.verifiers.code.problem import read_problem
from marti_ext.verifiers.code.programs import Programs, joined

F = "def f(x):\n    return x + 1"
G = "def g(x):\n    return x * 2"
SIGNATURE = 'import math\n\ndef f(x):\n    """One more than x."""\n'


def texts(reply: str) -> list[str]:
    blocks = code_blocks(reply)
    assert blocks is not None
    return [block.text for block in blocks]


def last(reply: str, entry_point: str = "f", prelude: str = "") -> str | None:
    block = Programs(code_blocks(reply) or [], entry_point, prelude).last()
    return None if block is None else "<cut>" if block.cut else block.text


def first(reply: str, entry_point: str = "f") -> str | None:
    block = Programs(code_blocks(reply) or [], entry_point).first()
    return None if block is None else block.text


@pytest.mark.parametrize(
    "reply",
    [
        f"Here:\n```python\n{F}\n```\nDone.",
        f"Here:\n```\n{F}\n```\nDone.",  # X1
        f"```Python3\n{F}\n```",
        f"```py\n{F}\n```",
        f"``` python title=\"f.py\"\n{F}\n```",
        f"```{{.python}}\n{F}\n```",
        f"~~~python\n{F}\n~~~",
        f"~~~~\n{F}\n~~~~~",
        f"````markdown\n```python\n{F}\n```\n````",
        f"~~~\n```python\n{F}\n```\n~~~",
        f"```python\r\n{F}\r\n```\r\n".replace("    ", "    ").replace("x):\n", "x):\r\n"),  # X7
        "1. Code:\n   ```python\n   def f(x):\n       return x + 1\n   ```\n2. Done",
        "- ```python\n  def f(x):\n      return x + 1\n  ```",
        F,  # X2: the prompt had opened the fence, or asked for none
        f"python\n{F}",
        f"{F}\n```",  # X2, X6
        f"{F}\n```\nIt adds one.",
        f"{F}\n```\nUse it so:\n```bash\npython f.py\n```",
        f"{F}\n\nThis function adds one (it's easy).",
        "```def f(x):\n    return x + 1\n```",
        "```python def f(x):\n    return x + 1\n```",
        f"{F}<|",  # X6
        f"{F}\n<|im_end",
        f"{F}\n<|im_end|>",
        f"{F}</s>",
        f"{F}\n```\n<|endoftext|>",
        f"```python\n{F}\n<|im_end|>",
        f"```python\n{F}\n```<|im_end|>",
        f"```python\n{F}\n```\n```",
        f"```python\n{F}```",
        f"```python\n{F}```\nIt adds one.",
        f"[BEGIN]\n{F}\n[DONE]",  # X7
        f"[BEGIN]\n '{F}'\n[DONE]\nmore",
        f"{F}\n[DONE]\n\nYou are an expert",
        f" '{F}'\n[DONE]",
        f"[BEGIN]\n```python\n{F}\n```\n[DONE]",
        f"[PYTHON]\n{F}\n[/PYTHON]",
        f'"{F}"',
        f"'''\n{F}\n'''",
        f'"""{F}"""',
        "'def f(x):\\n    return x + 1'",
        f"<think>```python\n{G}\n```</think>```python\n{F}\n```",
        f"```bash\npip install x\n```\n```python\n{F}\n```\n```\n>>> f(1)\n2\n```\n```json\n{{\"a\": 1}}\n```",
        f"```text\n{F}\n```",
        f"```python\n{F}\n\n```python\nprint(f(1))\n```",  # the first fence was never closed
    ],
)  # fmt: skip
def test_the_program_is_found_unchanged(reply: str) -> None:
    found = last(reply)
    assert found is not None
    assert found.strip("\n") == F


@pytest.mark.parametrize(
    "start",
    [
        "def f(x):\n    return x > 1 and x < 3",
        "import math\nprint(math.pi > 3)",
        "from math import pi\nprint(pi)",
        "class A:\n    pass",
        "@cache\ndef f(): return '|'",
    ],
)
def test_bare_code_stays_whole_x2_x5(start: str) -> None:
    assert texts(start) == [start]


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot.", "Answer: 42", "The answer is `x`.", '```json\n{"a": 1}\n```', "```bash\nls -l\n```", "42", "x"],
)
def test_what_is_no_program_is_none(reply: str) -> None:
    assert texts(reply) == []


def test_a_comparison_of_half_a_token_within_code_stays() -> None:
    code = "def f(s):\n    return s.split('<|im_end|>')[0] == '<|x'"
    assert texts(f"```python\n{code}\n```") == [code]
    assert texts(code) == [code]


def test_fences_within_a_docstring_do_not_end_the_block() -> None:
    code = (
        'def f(x):\n    """Add.\n    ```python\n    f(1)\n    ```\n    ```\n    2\n    ```\n    """\n    return x + 1'
    )
    assert texts(f"So:\n```python\n{code}\n```\nDone.") == [code]
    assert texts(f"So:\n```\n{code}\n```\nDone.") == [code]
    assert texts(code) == [code]


def test_code_before_prose_does_not_hide_a_block() -> None:
    assert texts(f"x = 5\n\nThen so:\n```python\n{F}\n```") == [F]


def test_a_block_that_opens_a_string_does_not_swallow_the_next() -> None:
    assert texts(f"```python\nx = '''\n```\nBetter:\n```python\n{F}\n```")[-1] == F
    assert texts(f"```text\nit's '''odd\n```\nNow:\n```python\n{F}\n```") == [F]


def test_of_drafts_the_last_that_defines_the_function_counts_x3() -> None:
    slow = "def f(x):\n    return sum([x, 1])"
    reply = f"Brute force:\n```python\n{slow}\n```\nBetter:\n```python\n{F}\n```\nUse:\n```python\nprint(f(1))\n```"
    assert last(reply) == F
    assert first(reply) == slow
    assert last(reply, entry_point="") == "print(f(1))"  # whole programs: the last one
    assert first(f"```python\nimport math\n```\n```python\n{F}\n```") == F


def test_an_import_of_the_function_does_not_define_it() -> None:
    assert last(f"```python\n{F}\n```\n```python\nfrom solution import f\nassert f(1) == 2\n```") == F


def test_earlier_helpers_that_the_last_block_uses_are_kept_transitively_x3() -> None:
    one = "from math import floor\nONE = floor(1.5)\n@staticmethod\ndef unused(): pass\ndef h(x):\n    return x + ONE"
    two = "def h2(x): return h(x)\nprint(h2(3))"
    final = "def f(x):\n    return h2(x)"
    reply = f"```python\n{one}\n```\n```python\n{two}\n```\n```python\n{final}\n```"
    kept = "from math import floor\n\nONE = floor(1.5)\n\ndef h(x):\n    return x + ONE\n\ndef h2(x): return h(x)"
    assert last(reply) == f"{kept}\n{final}"
    namespace: dict[str, object] = {}
    exec(last(reply) or "", namespace)
    assert eval("f(1)", namespace) == 2


def test_a_helper_that_the_last_block_makes_itself_is_not_taken_from_earlier() -> None:
    final = "def h(x): return x\ndef f(x): return h(x)"
    assert last(f"```python\ndef h(x): return 0\n```\n```python\n{final}\n```") == final


def test_what_only_the_tests_use_is_kept_too() -> None:
    node = "class Node:\n    pass"
    blocks = code_blocks(f"```python\n{node}\n```\n```python\n{F}\n```") or []
    found = Programs(blocks, "f", tests="assert f(Node()) == other").last()
    assert found is not None
    assert found.text == f"{node}\n{F}"


def test_a_block_that_is_indented_as_a_whole_is_levelled() -> None:
    reply = "```python\n    def f(x):\n        return x + 1\n```"
    assert last(reply) == last(reply, prelude=SIGNATURE) == first(reply) == F
    assert last("```\n  n = input()\n  print(n)\n```", entry_point="") == "n = input()\nprint(n)"


def test_a_session_is_no_program() -> None:
    assert last(f"```python\n{F}\n```\n```python\n>>> f(1)\n2\n```", entry_point="") == F


def test_each_block_stands_alone_for_any() -> None:
    programs = Programs(code_blocks(f"```python\n{G}\n```\n```python\n{F}\n```\n```python\nprint(1)") or [], "f")
    assert [block.text for block in programs.each(16)] == [F, G]
    assert [block.text for block in programs.each(1)] == [F]


@pytest.mark.parametrize(
    "reply",
    [
        "    y = x\n    return y + 1",
        "y = x\nreturn y + 1",
        "y = x\n    return y + 1",
        "```python\n    y = x\n    return y + 1\n```",
        "```\ny = x\nreturn y + 1\n```",
        "    y = x\n    return y + 1\n```",
        "<think>hm</think>    y = x\n    return y + 1",
        "```python\nreturn x + 1\n```\nFor example:\n```python\nprint(f(1))\n```",
    ],
)
def test_the_body_of_a_function_goes_under_its_signature(reply: str) -> None:
    program = last(reply, prelude=SIGNATURE)
    assert program is not None
    assert program.startswith(SIGNATURE)
    namespace: dict[str, object] = {}
    exec(program, namespace)
    assert eval("f(1)", namespace) == 2


def test_without_a_body_or_a_definition_the_last_block_counts_as_it_is() -> None:
    assert last("```python\nprint(1)\n```\n```python\nprint(2)\n```", prelude=SIGNATURE) == "print(2)"
    assert last("```python\ndef f(x\n```", prelude=SIGNATURE) == "def f(x"


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{F}",
        "```python\ndef f(x):\n    return (x +",
        f"```python\n{F}\n```\nBetter:\n```python\ndef f(x):\n    ret",
        f"So:\n```\n{F}",
        f"[BEGIN]\n{F}",
    ],
)
def test_a_block_without_an_end_is_cut(reply: str) -> None:
    assert last(reply) == "<cut>"


def test_a_cut_block_that_does_not_count_changes_nothing() -> None:
    reply = f"```python\n{F}\n```\nUse:\n```python\nprint(f("
    assert last(reply) == F
    assert last(reply, entry_point="") == "<cut>"
    assert code_blocks(f"<think>```python\n{F}\n```") is None


def test_the_prefix_is_part_of_the_program_x8() -> None:
    prelude = f"from typing import List\n\n{G}\n\n\ndef f(x):\n    '''Twice.'''\n"
    problem = read_problem(
        Task("1", "", kind="code", metadata={"tests": "f(1)", "entry_point": "f", "prelude": prelude})
    )
    assert problem is not None
    assert problem.prefix == f"from typing import List\n\n{G}"  # type: ignore[union-attr]
    future = "from __future__ import annotations\nimport os\n"
    assert joined("import sys", f'"""What."""\n{future}{F}').startswith(
        "from __future__ import annotations\nimport sys"
    )
    for program in (joined("import sys", future + F), joined(future, "from __future__ import division; a = 1\n" + F)):
        exec(compile(program, "p", "exec", dont_inherit=True), {})
    assert joined("", F) == F


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"entry_point": "f"},
        {"tests": "", "entry_point": "f"},
        {"tests": "def check(candidate):\n    assert candidate(1) == 2", "entry_point": "f"},  # never called
        {"tests": "assert f(1) ==", "entry_point": "f"},
        {"tests": ["assert f(1) == 2"], "entry_point": "f"},
        {"cases": []},
        {"cases": None, "tests": "assert f(1) == 2"},
        {"cases": [["1"]]},
        {"cases": [[1, 2]]},
        {"cases": [["1", "2"]], "tolerance": -1},
        {"cases": [["1", "2"]], "tolerance": float("nan")},
        {"cases": [["1", "2"]], "cpu_seconds": 0},
    ],
)
def test_metadata_that_tests_nothing_is_no_label(metadata: dict[str, object]) -> None:
    task = Task("1", "", kind="code", metadata=metadata)
    assert {s.status for s in CodeVerifier().grade(task, f"```python\n{F}\n```").values()} == {"no_label"}
    assert CodeVerifier().verify(task, F).value == 0.0


PARTS = [
    "```",
    "````",
    "~~~",
    "python",
    "def f(x):",
    "    return x",
    "'''",
    '"""',
    "[BEGIN]",
    "[DONE]",
    "<think>",
    "</think>",
    "\n",
    "\r\n",
    " ",
    "<|",
    "im_end|>",
    "(",
    "\\",
    "\x00",
    "\x0c",
    "\ud800",
    "from __future__ import annotations",
    ";",
    "é",
    "import a.b as c",
]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=40).map("".join))
@settings(max_examples=500, deadline=None)
def test_nothing_raises(reply: str) -> None:
    verifier = CodeVerifier()
    for metadata in ({"entry_point": "f", "prelude": SIGNATURE}, {"cases": [["1", "1"]]}):
        task = Task("1", "", kind="code", metadata=metadata)
        program = verifier.read(task, reply)
        assert verifier.agree(task, program, program)
        programs = Programs(code_blocks(reply) or [], "f", SIGNATURE)
        programs.first()
        for block in programs.each(16):
            joined(SIGNATURE, block.text)


HOSTILE = {
    "backticks": "`" * 200_000,
    "fence lines": "```\n" * 50_000,
    "tagged fences": "```python\n" * 20_000,
    "other fences": "```a\nx```\n" * 18_000,
    "growing fences": "".join("`" * n + "\n" for n in range(3, 630)),
    "falling fences": "".join("`" * n + "a\n" for n in range(630, 2, -1)) + "x\n" * 50_000,
    "quotes": "```python\n'''\n```\n\"\"\"\n" * 9_000,
    "odd quotes": "```python\n'''\n```\n" + "```python\nx\n```\n" * 12_000,
    "blocks": "```python\ndef f(x):\n    return g(x)\n```\n" * 5_000,
    "helpers": "```python\ndef f(x): return f0(x)\n```\n"
    + "".join(f"```python\ndef f{n}(x): return f{n + 1}(x)\n```\n" for n in reversed(range(4_000)))
    + "```python\ndef f(x): return f0(x)\n```",
    "half tokens": "def f(x): pass" + "<|" * 100_000,
    "marks": "[BEGIN]" * 30_000,
    "blanks": "def f(x): pass" + " \n" * 100_000 + "x",
    "parentheses": "def f(x): return " + "(" * 200_000,
    "sums": "def f(x): return " + "1+" * 100_000 + "1",
    "minuses": "x = " + "-" * 199_000 + "1",
    "nested lists": "- " * 100_000 + "```",
    "thinking": "<think>" * 28_000,
}  # fmt: skip


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_take_linear_time(reply: str) -> None:
    task = Task("1", "", kind="code", metadata={"entry_point": "f", "prelude": SIGNATURE})
    started = time.process_time()
    program = CodeVerifier().read(task, reply)
    CodeVerifier().agree(task, program, program + " # more")
    programs = Programs(code_blocks(reply) or [], "f", SIGNATURE)
    programs.first()
    programs.each(16)
    assert time.process_time() - started < 8.0  # quadratic time would be minutes
