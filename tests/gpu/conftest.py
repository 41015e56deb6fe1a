"""On a machine with several GPUs, tests that run side by side share them out among their workers."""

import os

from evaluator.devices.gpu import gpus

_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if _worker.startswith("gw") and (_found := gpus()):
    # Before torch looks; the commands that tests start inherit it.
    os.environ["CUDA_VISIBLE_DEVICES"] = _found[int(_worker[2:]) % len(_found)].uuid
