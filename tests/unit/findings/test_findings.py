import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.findings.table import FAMILIES
from evaluator.report.findings_page import PAGE, page


def test_every_code_has_an_entry_with_words_in_it():
    assert set(ENTRIES) == set(Code)
    for entry in ENTRIES.values():
        assert all(part.strip() for part in (entry.title, entry.meaning, entry.next_step, *entry.other_steps))
        assert entry.meaning.endswith((".", ")"))
        assert entry.next_step.endswith((".", ")"))


def test_every_entry_is_in_the_family_of_its_letter():
    for letter, entries in FAMILIES.items():
        assert list(entries) == [code for code in Code if code.value[0] == letter]


def test_codes_are_letter_and_three_digits_and_unique():
    values = [code.value for code in Code]
    assert len(set(values)) == len(values)
    assert all(value[0] in "SBRCTIX" and value[1:].isdigit() and len(value) == 4 for value in values)


@pytest.mark.parametrize("code", Code)
def test_a_finding_carries_its_next_step(code):
    made = finding(code, "what happened", line=3, path="output")
    assert (made.code, made.line, made.details) == (code.value, 3, {"path": "output"})
    assert made.next_step == ENTRIES[code].next_step


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m evaluator.report.findings_page --write"
