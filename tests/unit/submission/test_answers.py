"""Answers of language models: the graded block, reasoning that is left out, and errors for a wrong form."""

import io
import textwrap

import pytest

from evaluator.findings import Code
from evaluator.findings.submission import (
    ADD_CLASS,
    COMPLETE_FILE,
    END_REASONING,
    NO_JSON,
    ONE_BLOCK,
    RENAME,
    WITH_PYTHON,
)
from evaluator.records import Finding
from evaluator.submission.read import Submission, read_submission

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
DRAFT = f"```python\n{CODE}draft = 1\n```\n"
FINAL = f"```python\n{CODE}```\n"


def read(text: str, entry: str | None = None) -> Submission | Finding:
    return read_submission("-", io.BytesIO(text.encode()), entry=entry)


def accepted(text: str, entry: str | None = None) -> Submission:
    result = read(text, entry)
    assert isinstance(result, Submission), result
    return result


def refused(text: str) -> Finding:
    result = read(text)
    assert isinstance(result, Finding), result
    return result


UNTAGGED = "We need a kernel.\n"
TAGS = {
    "DeepSeek and Qwen": ("<think>\n", "</think>\n"),
    "upper case": ("<THINK>\n", "</Think>\n"),
    "thinking": ("<thinking>\n", "\n</thinking>\n"),
    "reasoning with an attribute": ('<reasoning effort="high">\n', "</reasoning>\n"),
    "Seed": ("<seed:think>", "</seed:think>"),
    "Mistral": ("[THINK]", "[/THINK]"),
    "Kimi": ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    "OpenThinker": ("<|begin_of_thought|>\n\n", "\n\n<|end_of_thought|>\n\n"),
    "Cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "gpt-oss without its tokens": ("analysisWe need a kernel.\n", "assistantfinal"),
    "the prompt has the opening tag": (UNTAGGED, "</think>\n"),
    "nested": ("<think>\nFirst\n<think>\n", "</think>\nSecond\n</think>\n"),
    "opened twice": ("<think>\n<think>\n", "</think>\n"),
    "several": (f"<think>\n{DRAFT}</think>\nHm.\n<think>\n", "</think>\n"),
}
KINDS = pytest.mark.parametrize(("opening", "closing"), TAGS.values(), ids=TAGS)


@KINDS
@pytest.mark.parametrize("draft", [DRAFT, DRAFT.removesuffix("```\n"), CODE], ids=["closed", "open", "unfenced"])
class TestReasoning:
    def test_the_answer_after_it_is_graded_and_the_draft_is_named(self, opening, closing, draft):
        text = f"{opening}{draft}{closing}\n{FINAL}"
        submission = accepted(text)
        assert submission.source == CODE
        assert text.split("\n")[submission.line_offset] == "import torch"
        assert [each.code for each in submission.findings] == [Code.LEFT_OUT]
        assert "left out: reasoning or draft with code in line" in submission.findings[0].message

    def test_an_answer_without_code_is_no_answer(self, opening, closing, draft):
        finding = refused(f"{opening}{draft}{closing}\nI could not finish a kernel that I trust.\n")
        assert finding.code == Code.NO_CODE
        assert finding.message.endswith("; code inside the model's reasoning does not count")

    def test_an_answer_that_is_cut_off_is_no_answer(self, opening, closing, draft):
        finding = refused(f"{opening}{draft}{closing}\nFaster:\n\n```python\nimport torch\n")
        assert finding.code == Code.CUT_OFF
        assert "is never closed" in finding.message

    def test_code_without_a_fence_is_an_answer(self, opening, closing, draft):
        submission = accepted(f"{opening}{draft}{closing}\n{CODE}")
        assert submission.source.strip() == CODE.strip()
        assert submission.extracted_from_answer


@pytest.mark.parametrize("opening", [opening for opening, _ in TAGS.values() if opening != UNTAGGED])
@pytest.mark.parametrize("draft", [DRAFT, CODE, DRAFT.removesuffix("```\n")], ids=["closed", "unfenced", "open"])
def test_reasoning_that_never_ends_is_no_answer(opening, draft):
    finding = refused(f"{opening}{draft}Wait, should I vectorise?")
    assert finding.code == Code.CUT_OFF
    assert "the model's reasoning, from line" in finding.message
    assert "never ends, so there is no answer" in finding.message
    assert finding.next_step == END_REASONING


@pytest.mark.parametrize(
    "opening",
    [
        *(
            "Sure! <think> Let me draft\n",
            "**<think>**\n",
            "<|think|>\n",
            "<chain_of_thought>\n",
            "<inner_monologue>\n",
        ),
        *("<reasoning_content>\n", "<|inner_prefix|>", "<unused94>thought\n"),
    ],
)
def test_reasoning_begins_at_any_tag_that_is_not_quoted(opening):
    assert refused(f"{opening}{DRAFT}Wait, should I vectorise?").code == Code.CUT_OFF


def test_a_fence_may_follow_a_closing_tag_on_its_line():
    assert accepted(f"<unused94>thought\n{DRAFT}Hm.<unused95>{FINAL.lstrip()}").source == CODE


def test_a_fence_may_end_a_line_of_prose():
    block = FINAL.lstrip()
    assert accepted(f"Here is the kernel: {block}").source == CODE
    assert accepted(f"Use `x`. Then ```text stays in prose\n{FINAL}").source == CODE


@pytest.mark.parametrize("closing", [closing for _, closing in TAGS.values()], ids=TAGS)
def test_a_closing_tag_alone_ends_reasoning(closing):
    assert accepted(f"So:\n{DRAFT}Hm.{closing}\n{FINAL}").source == CODE
    assert refused(f"So:\n{DRAFT}Hm.{closing}\nSorry.\n").code == Code.NO_CODE


@pytest.mark.parametrize(
    "line",
    ["</think>", "<think>", "STOP = '</think>'", "# `<think>`", "<answer>", "</answer>", "[THINK]", "[/THINK]"],
)
def test_tags_inside_the_code_are_code(line):
    code = f"{CODE}TEXT = '''\n{line}\n'''\n"
    for text in (f"```python\n{code}```\n", f"<think>\nhm\n</think>\n```python\n{code}```\nDone.\n", code):
        assert accepted(text).source == code


def test_an_answer_before_reasoning_that_never_ends_counts():
    assert accepted(f"{FINAL}<think>\nCould it be faster?\n{DRAFT}").source == CODE


@pytest.mark.parametrize("stop", ["<|im_end|>", "</s>", "<|return|>\n", "<|eot_id|><|endoftext|>"])
def test_tokens_that_end_a_turn_are_no_code(stop):
    assert accepted(FINAL.rstrip() + stop).source == CODE
    assert accepted(CODE + stop).source == CODE


TWO_CLASSES = "```python\nclass Net(nn.Module):\n    pass\n\n\nclass Block(nn.Module):\n    pass\n```\n"
DIFF = "--- a/model.py\n+++ b/model.py\n@@ -1,2 +1,2 @@\n-class Model(nn.Module):\n+class ModelNew(nn.Module):\n"
CUDA = "#include <cuda.h>\n__global__ void k(float* x) { x[threadIdx.x] = 0; }\n"
WRONG = {
    "prose, then code": (f"Here is the kernel:\n\n{CODE}", 1, "line 1 is prose", ONE_BLOCK),
    "a greeting, then code": (f"\nSure! Below is it.\n{CODE}", 2, "line 2 is prose", ONE_BLOCK),
    "tags around prose and code": (f"<answer>\nThis is the kernel\n{CODE}</answer>", 2, "is prose", ONE_BLOCK),
    "a title, then code": (f"# The ReLU kernel\n\nThe kernel is fast.\n{CODE}", 1, "line 1 is prose", ONE_BLOCK),
    "JSON": ('{"code": "import torch\\nclass ModelNew(nn.Module): pass"}', 1, "is JSON", NO_JSON),
    "JSON in a block": ('So:\n```json\n{"code": "class ModelNew: pass"}\n```\n', 3, "is JSON", NO_JSON),
    "a list in JSON": ('[{"file": "a.py"}]', 1, "is JSON", NO_JSON),
    "a diff": (DIFF, 1, "is a diff", COMPLETE_FILE),
    "a diff in a block": (f"```diff\n{DIFF}```\n", 2, "is a diff", COMPLETE_FILE),
    "a diff with the class around": (f"{DIFF} class ModelNew(nn.Module):\n+    x = 1\n", 1, "a diff", COMPLETE_FILE),
    "search and replace": (
        "```\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```\n",
        2,
        "is a diff",
        COMPLETE_FILE,
    ),
    "code in a string of a dict": (f'{{\'code\': """\n{CODE}"""', 1, "is JSON", NO_JSON),
    "Python with a kernel": (
        "```python\nimport torch\nsrc = '''\n__global__ void k() {}\n'''\n```\n",
        2,
        "the answer has Python with C++ or CUDA, and no class ModelNew",
        ADD_CLASS,
    ),
    "a patch": ("*** Begin Patch\n*** Update File: a.py\n*** End Patch\n", 1, "is a diff", COMPLETE_FILE),
    "CUDA": (CUDA, 1, "C++ or CUDA without Python", WITH_PYTHON),
    "CUDA in a block": (f"Use:\n```cuda\n{CUDA}```\n", 3, "C++ or CUDA without Python", WITH_PYTHON),
    "two blocks of C++": (f"```cpp\n{CUDA}```\n```cpp\n{CUDA}```\n", 2, "C++ or CUDA without Python", WITH_PYTHON),
    "YAML": (f"```yaml\ncontent: |\n{textwrap.indent(CODE, '  ')}```\n", 2, "not in plain Python", ONE_BLOCK),
    "escaped line ends": (
        "Use\\nimport torch\\nclass ModelNew(nn.Module):\\n  pass",
        1,
        "not in plain Python",
        ONE_BLOCK,
    ),
    "other names": (TWO_CLASSES, 2, "defines Net, Block, and no class ModelNew or Model", RENAME),
}


@pytest.mark.parametrize(("text", "line", "words", "step"), WRONG.values(), ids=WRONG)
def test_a_wrong_form_gets_the_words_that_mend_it(text, line, words, step):
    finding = refused(text)
    assert (finding.code, finding.line, finding.next_step) == (Code.WRONG_FORM, line, step)
    assert words in finding.message


RIGHT = {
    "answer tags without a fence": f"<think>\nmemory bound\n</think>\n<answer>\n{CODE}</answer>\n",
    "answer tags, the closing one was the stop word": f"<answer>\n{CODE}",
    "answer tags around a block": f"A draft:\n{DRAFT}<answer>\n{FINAL}</answer>\n",
    "a block on the line of the tag": f"<think>hm</think>```python\n{CODE}```\n",
    "solution tags": f"<reasoning>hm</reasoning>\n<solution>\n{CODE}</solution>",
    "a block of CUDA first": f"```cuda\n{CUDA}```\nand\n{FINAL}",
    "usage after it": f"{FINAL}Run it:\n```bash\npython run.py\n```\n",
    "the reference is quoted first": f"The reference:\n```python\nclass Model(nn.Module): pass\n```\n{FINAL}",
    "the reference is quoted last": f"{FINAL}instead of\n```python\nclass Model(nn.Module): pass\n```\n",
    "a list": f"<think>\n1. x\n</think>\n1. So:\n\n   ```python\n{textwrap.indent(CODE, '   ')}\n   ```\n",
    "quoted tags in prose before": f"The model's `<think>` tags are left out.\n{FINAL}",
    "quoted tags in prose behind": f"{FINAL}\nThe tags `<think>` and `</think>` are not used.\n",
    "windows": f"<think>\nhm\n</think>\n{FINAL}".replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_an_odd_answer_is_read_as_meant(text):
    assert [line.strip() for line in accepted(text).source.strip().split("\n")] == [
        line.strip() for line in CODE.strip().split("\n")
    ]


class TestEntry:
    MODEL = CODE.replace("ModelNew", "Model")

    def test_model_is_read_where_no_modelnew_is(self):
        assert accepted(f"So:\n```python\n{self.MODEL}```\n").source == self.MODEL
        assert accepted(self.MODEL).source == self.MODEL

    def test_a_quoted_reference_is_not_read_for_a_modelnew_that_is_cut_off(self):
        assert refused(f"```python\n{self.MODEL}```\nNow:\n```python\nimport torch\n").code == Code.CUT_OFF

    def test_a_named_entry_is_the_only_one(self):
        named = CODE.replace("ModelNew", "Kernel")
        assert accepted(f"```python\n{named}```\n{FINAL}", entry="Kernel").source == named
        finding = read(FINAL, entry="Kernel")
        assert isinstance(finding, Finding)
        assert finding.message == "the answer defines ModelNew, and no class Kernel"
        assert finding.next_step == RENAME
