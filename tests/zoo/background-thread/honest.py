"""A thread does the work, and the call waits for it."""

import queue
import threading
import time

import torch
from torch import nn


questions = queue.SimpleQueue()


def work():
    while True:
        a, b, out, done = questions.get()
        time.sleep(0.001)
        torch.mm(a, b, out=out)
        done.set()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=work, daemon=True).start()

    def forward(self, a, b):
        out, done = torch.empty_like(a), threading.Event()
        questions.put((a, b, out, done))
        done.wait()
        return out
