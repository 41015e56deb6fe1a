"""How much of a GPU does the judge keep for itself, for each shipped problem at full size?

PYTHONPATH=. python docs/experiments/judge_memory.py
"""

import torch

from evaluator.catalog import list_problems
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.problem_setup import planned, try_one_call
from evaluator.records import SizeName

_GIB = 1 << 30


def main() -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for problem in list_problems(None).problems:
        torch.cuda.empty_cache()
        reference = Reference(problem, SizeName.FULL, 1, "cuda")
        sizes, _ = try_one_call(reference, on_gpu=True)
        torch.cuda.empty_cache()
        free_bytes, _ = torch.cuda.mem_get_info()
        sizes = planned(reference, sizes, free_bytes)
        parts = {
            "inputs": sizes.input_bytes,
            "outputs": sizes.output_bytes,
            "peak": sizes.peak_bytes,
            "judge": sizes.judge_bytes,
            "runner": sizes.runner_bytes,
        }
        told = ", ".join(f"{name} {size_bytes / _GIB:.2f}" for name, size_bytes in parts.items())
        print(f"{problem.name}: {told} GiB, float64 {reference.exact_model is not None}", flush=True)
        del reference


if __name__ == "__main__":
    main()
