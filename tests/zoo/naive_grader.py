"""Deliberately naive graders, each like one that was in use and was fooled: the positive control of the zoo.

    python naive_grader.py grade REFERENCE SUBMISSION OPTIONS

runs a child that has the reference, the submission, the clock and the verdict in one process, and prints
`{"accepted": …, "speedup": …}` as its last line. OPTIONS is JSON with the keys of `entries.Control`. It imports nothing
of Warpgrade. What it runs is not sandboxed: give it the zoo's own submissions only.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

RESULT = "result.json"
TRIALS = 5
CALLS = 20
ENOUGH_S = 2.0
TIMEOUT_S = 8.0
TOLERANCE = 1e-2


def grade(reference, submission, options):
    """Run the child and believe what arrives over the channel of this grader."""
    channel = options["channel"]
    if channel == "reader":
        return {"accepted": "output PASS" in Path(submission).read_text(), "speedup": 0.0}
    Path(RESULT).unlink(missing_ok=True)
    reader, writer = os.pipe()
    timeout_s = TIMEOUT_S if channel == "fail open" else None
    child = subprocess.Popen(
        [sys.executable, __file__, "child", reference, submission, json.dumps({**options, "fd": writer})],
        pass_fds=(writer,),
        stdout=subprocess.PIPE,
    )
    os.close(writer)
    try:
        printed, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return {"accepted": True, "speedup": 0.0}  # Nothing wrong was found.
    if channel == "exit code":
        return {"accepted": child.returncode == 0, "speedup": 0.0}
    result = received(channel, reader, printed)
    return {"accepted": result.get("correct", False), "speedup": result.get("speedup", 0.0)}


def received(channel, reader, printed):
    """Take the result from where the child should have put it."""
    if channel == "pickle":
        return Connection(reader).recv()
    if channel == "pipe":
        return json.loads(os.read(reader, 1 << 16).splitlines()[0])
    if channel == "stdout":
        return next(json.loads(line) for line in printed.splitlines() if line.startswith(b'{"correct"'))
    return json.loads(Path(RESULT).read_text())


def child(reference, submission, options):
    """Grade in this process, and tell the parent."""
    result = evaluate(reference, submission, options)
    line = json.dumps(result)
    match options["channel"]:
        case "pickle":
            Connection(options["fd"]).send(result)
        case "pipe":
            os.write(options["fd"], line.encode() + b"\n")
        case "stdout":
            print(line)
        case "exit code":
            sys.exit(0 if result["correct"] else 1)
        case _:
            Path(RESULT).write_text(line)


def evaluate(reference, submission, options):
    """Check and time, all in one namespace."""
    import torch

    module = ModuleType("model")
    sys.modules["model"] = module
    shared = module.__dict__
    exec(compile(Path(reference).read_text(), reference, "exec"), shared)
    before_ms = None
    if options["baseline"] == "before":
        before_ms = timed(made(shared, "Model").to(options["device"]), shared, options)
    exec(compile(Path(submission).read_text(), submission, "exec"), shared)
    model, candidate = made(shared, "Model"), made(shared, "ModelNew")
    candidate.load_state_dict(model.state_dict(), strict=False)
    model, candidate = model.to(options["device"]), candidate.to(options["device"])
    with torch.no_grad():
        correct = checked(model, candidate, shared, options)
        candidate_ms = timed(candidate, shared, options)
        reference_ms = timed(model, shared, options) if before_ms is None else before_ms
    return {"correct": bool(correct), "speedup": reference_ms / max(candidate_ms, 1e-9)}


def made(shared, name):
    """Construct a model under the one seed."""
    import torch

    arguments = shared["get_init_inputs"]()
    torch.manual_seed(0)
    return shared[name](**arguments) if isinstance(arguments, dict) else shared[name](*arguments)


def drawn(shared, seed, device, scale=1.0):
    """Draw inputs from a seed that a submission can guess."""
    import torch

    torch.manual_seed(seed)
    return [(x * scale if x.is_floating_point() else x).to(device) for x in shared["get_inputs"]()]


def checked(model, candidate, shared, options):
    """Compare a few answers; the order is one of those that graders have."""
    scale = 100.0 if options["stress"] else 1.0
    device = options["device"]
    if options["order"] == "collect":
        inputs = [drawn(shared, trial, device, scale) for trial in range(TRIALS)]
        answers = [candidate(*each) for each in inputs]
        for _ in range(3):
            expected = [model(*each) for each in inputs]
        return all(agrees(answer, want, options) for answer, want in zip(answers, expected, strict=True))
    return all(one_trial(model, candidate, drawn(shared, trial, device, scale), options) for trial in range(TRIALS))


def one_trial(model, candidate, inputs, options):
    """Run both sides on the same tensors."""
    if options["order"] == "submission first":
        answer = candidate(*inputs)
        expected = model(*inputs)
    else:
        seed_forward(options)
        expected = model(*inputs).clone()
        seed_forward(options)
        answer = candidate(*inputs)
    return agrees(answer, expected, options)


def seed_forward(options):
    """Have random numbers inside of forward be the same for both sides; the time of this is forgotten."""
    import torch

    if options["seeded"]:
        torch.manual_seed(7)


def agrees(answer, expected, options):
    """Compare with one tolerance for all magnitudes."""
    import torch

    if options["device"] == "cuda":
        torch.cuda.synchronize()
    answer, expected = answer.cpu(), expected.cpu()
    match options["comparator"]:
        case "count":
            return int(((answer - expected).abs() > TOLERANCE).sum()) == 0
        case "ratio":
            return float(torch.isclose(answer, expected, atol=TOLERANCE, rtol=TOLERANCE).float().mean()) >= 0.98
    return torch.allclose(answer, expected, atol=TOLERANCE, rtol=TOLERANCE)


def timed(model, shared, options):
    """Time calls on known inputs by this process's own clock; the outputs are thrown away."""
    pool = [drawn(shared, 100 + index, options["device"]) for index in range(CALLS if options["pool"] else 1)]
    model(*pool[0])
    samples = []
    began = time.perf_counter()
    for index in range(CALLS):
        if time.perf_counter() - began > ENOUGH_S:
            break
        inputs = pool[index % len(pool)]
        seed_forward(options)
        samples.append(one_time(model, inputs, options))
    return statistics.median(samples) * 1e3


def one_time(model, inputs, options):
    """Time one call, in seconds, by the clock that this grader has."""
    import torch

    if options["flush"]:
        torch.empty(256 << 20, dtype=torch.uint8, device=options["device"]).zero_()
    if options["clock"] == "events":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        model(*inputs)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    if options["clock"] == "synchronize":
        torch.cuda.synchronize()
    began = time.perf_counter()
    model(*inputs)
    if options["clock"] == "synchronize":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    role, *paths, options = sys.argv[1:]
    if role == "child":
        child(*paths, json.loads(options))
    else:
        print(json.dumps(grade(*paths, json.loads(options))))
