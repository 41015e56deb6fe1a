"""A loop of GRPO through TRL's interface: how many answers lost their reward, and does an answer always pay the same?

    python -m benchmarks.verdicts.grpo_loop --grades 1000

The policy of `examples/toy_policy.py` draws answers to `relu` and calls the reward function of `examples/trl_reward.py`
with the arguments of TRL's trainer. Answers are the shipped solutions, PyTorch's own function, and forms of failure.
The device is `emulated`, whose rewards contain no time, so each answer has one right reward.
"""

import argparse
import contextlib
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples"
CORRECT, NOTHING = 0.3, 0.0
"""Rewards on a device without a clock."""
_KERNEL = (TOP / "solutions" / "relu" / "cuda_plain.py").read_text(encoding="utf-8")
_FUNCTION = "value <= 0.0f ? 0.0f : value;"


def _changed(old: str, new: str) -> str:
    if old not in _KERNEL:
        raise ValueError(f"the shipped solution does not contain {old!r}")
    return _KERNEL.replace(old, new)


def answers(torch_relu: str) -> dict[str, tuple[str, float]]:
    """Return the answers by name, each with its right reward."""
    shipped = {
        path.stem: (path.read_text(encoding="utf-8"), CORRECT)
        for path in sorted((TOP / "solutions" / "relu").glob("cuda_*.py"))
    }
    failures = {
        "torch.relu": torch_relu,
        "no answer": "I cannot write this kernel.",
        "does not compile": _changed("blockDim.x", "blockDimension.x"),
        "wrong values": _changed(_FUNCTION, "value;"),
        "out of bounds": _changed("= x[i];", "= x[i + 1];"),
        "raises": f"{_KERNEL}\n\nraise ValueError('no')\n",
        "ends its process": f"{_KERNEL}\n\nimport os\nos._exit(0)\n",
        "never returns": f"{_KERNEL}\n\nwhile True:\n    pass\n",
    }
    in_markdown = f"I would write:\n\n```python\n{_KERNEL}```\n"
    return (
        shipped
        | {"right, in Markdown": (in_markdown, CORRECT)}
        | {name: (text, NOTHING) for name, text in failures.items()}
    )


def run(grades: int, group: int) -> dict[str, Any]:
    """Train, and return the figures."""
    sys.path.insert(0, str(EXAMPLES))
    import toy_policy
    import trl_reward

    # A submission without an end would otherwise hold a slot for a minute, the limit of an import.
    trl_reward.OPTIONS |= {"device": "emulated", "ready": False, "timeout_s": 10.0}
    given = answers(toy_policy.FALLBACK)
    names = {text: name for name, (text, _) in given.items()}
    paid: dict[str, list[float | None]] = defaultdict(list)

    def reward(completions: list[str], problem: list[str]) -> list[float | None]:
        # TRL passes these columns, and perhaps others later.
        columns = {"prompts": problem, "completion_ids": [[0]] * len(problem), "trainer_state": None}
        found = trl_reward.kernel_reward(completions=completions, problem=problem, **columns)
        for text, each in zip(completions, found, strict=True):
            paid[names[text]].append(each)
        return found

    steps = -(-grades // group)
    started_s = time.monotonic()
    texts = {name: text for name, (text, _) in given.items()}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            shares, lost = toy_policy.train(texts, "relu", reward, steps=steps, group=group)
    finally:
        trl_reward.grader().close()
    return {
        "grades": sum(map(len, paid.values())),
        "lost": lost,
        "wrongly_paid": sum(each != given[name][1] for name, found in paid.items() for each in found),
        "wall_s": round(time.monotonic() - started_s, 1),
        "answers": {
            name: {"right_reward": given[name][1], "draws": len(paid[name]), "final_share": round(shares[name], 4)}
            for name in given
        },
    }


def main() -> None:
    """Run the loop, and write the figures to stdout as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grades", type=int, default=1000)
    parser.add_argument("--group", type=int, default=16)
    given = parser.parse_args()
    print(json.dumps(run(given.grades, given.group), indent=2))


if __name__ == "__main__":
    main()
