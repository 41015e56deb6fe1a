"""Small definitions in the form of SOL-ExecBench, for tests that change a part of them."""

import json

RUN = """\
import torch


@torch.no_grad()
def run(x, weight, eps):
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


if __name__ == "__main__":
    rows = 3
    print(rows)
"""
NORM = {
    "name": "norm",
    "hf_id": "someone/model",
    "description": "Scales rows to size one.",
    "axes": {
        "rows": {"type": "var", "description": "Tokens"},
        "heads": {"type": "const", "value": 4},
        "columns": {"type": "expr", "expression": "heads * 2 ** 3 / 2"},
    },
    "custom_inputs_entrypoint": None,
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"},
        "weight": {"shape": ["columns"], "dtype": "float32", "description": "Weights"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "float32"}},
    "reference": RUN,
}
RANDOM, CUSTOM = {"type": "random"}, {"type": "custom"}
SOURCES = {"x": RANDOM, "weight": RANDOM, "eps": {"type": "scalar", "value": 1e-6}}
WORKLOADS = [
    {"uuid": "first", "axes": {"rows": 8}, "inputs": SOURCES, "tolerance": {"max_atol": 0.5, "max_rtol": 0.0}},
    {"uuid": "large", "axes": {"rows": 32}, "inputs": SOURCES, "tolerance": None},
    {"uuid": "least", "axes": {"rows": 3}, "inputs": {**SOURCES, "eps": {"type": "scalar", "value": 1}}},
]


def write_definition(folder, definition=NORM, workloads=WORKLOADS, **changed):
    """Write a definition and its workloads into a new folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_text(json.dumps({**definition, **changed}))
    (folder / "workload.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in workloads))
    (folder / "reference.py").write_text(definition["reference"])
    return folder
