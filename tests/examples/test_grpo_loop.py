"""A short form of the loop whose full length is in docs/integrations.md: real grades through TRL's interface."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_no_answer_loses_its_reward():
    words = [sys.executable, "-m", "benchmarks.verdicts.grpo_loop", "--grades", "40", "--group", "8"]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert (found["grades"], found["lost"], found["wrongly_paid"]) == (40, 0, 0)
    drawn = [answer for answer in found["answers"].values() if answer["draws"]]
    assert {answer["right_reward"] for answer in drawn} == {0.0, 0.3}
