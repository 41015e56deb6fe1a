"""A PyTorch that seems to have one GPU: asked and used as submissions do, in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.grading.harness import TOP

START = """
import json, os, sys, traceback
sys.path.insert(0, sys.argv[1])
import torch
from torch import nn
from evaluator.runner.emulation import install_fake_cuda, real_device
install_fake_cuda()
x = torch.ones(3)
for number, statement in enumerate(json.loads(sys.argv[2])):
    if os.fork() == 0:
        try:
            exec(statement)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        else:
            print("done", number)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""

STATEMENTS = [
    "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
    "assert x.is_cuda and x.get_device() == 0 and x.device == torch.device('cuda', 0) == torch.device('cuda:0')",
    "assert torch.device('cuda').type == 'cuda' and torch.device('cpu').type == 'cpu'",
    "assert real_device(torch.zeros(2, device='cuda')).type == 'cpu'",
    "assert real_device(torch.zeros(2, device=torch.device('cuda', 0))).type == 'cpu'",
    "assert real_device(x.to('cuda:0')).type == 'cpu' and real_device(x.cuda()).type == 'cpu'",
    "assert real_device(x.to(torch.device('cuda'), torch.float64)).type == 'cpu'",
    "assert real_device(nn.Linear(2, 2, device='cuda').cuda().to('cuda').weight).type == 'cpu'",
    "assert real_device(torch.empty_like(x, device=x.device)).type == 'cpu'",
    "with torch.device('cuda'): assert real_device(torch.zeros(2)).type == 'cpu'",
    "with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()): torch.cuda.synchronize()",
    "assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132",
    "assert torch.cuda.get_device_capability() == (9, 0)",
]


@pytest.fixture(scope="module")
def said() -> str:
    """Output of one process that runs each statement in a fork of its own: each import of PyTorch takes seconds."""
    command = [sys.executable, "-c", START, str(TOP), json.dumps(STATEMENTS)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_submissions_do_with_a_gpu(said, statement):
    assert f"done {STATEMENTS.index(statement)}\n" in said, said
