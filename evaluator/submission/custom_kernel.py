"""Submissions in KernelBot's form, a function `custom_kernel(data)`, as submissions of two files. Nothing is run.

The entry is a `ModelNew` that calls the function. The entry imports `model` first: the reference's text registers the
task's modules.
"""

import re

from evaluator.protocol.submission_files import MANIFEST, joined

KERNEL = "custom_kernel"
_DEFINITION = re.compile(rf"^(?:def[ \t]+{KERNEL}[ \t]*\(|{KERNEL}[ \t]*=(?!=))", re.MULTILINE)
_CLASS = re.compile(r"^(?:class[ \t]+(?:ModelNew|Model)\b|(?:ModelNew|Model)[ \t]*=(?!=))", re.MULTILINE)
_ENTRY = "warpgrade_entry.py"
_ENTRY_TEXT = f"""\
import model
import torch

from submission import {KERNEL}

as_given = getattr(model, "as_given", lambda data: data)


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return {KERNEL}(*map(as_given, inputs))
"""


def is_custom_kernel(source: str) -> bool:
    """Return whether a text of Python defines KernelBot's function, and no entry class.

    >>> is_custom_kernel("def custom_kernel(data): ..."), is_custom_kernel("class ModelNew: ...")
    (True, False)
    """
    return _DEFINITION.search(source) is not None and _CLASS.search(source) is None


def custom_kernel_text(source: str) -> str:
    """Return the text of a submission of two files: the entry, and `submission.py` with unchanged line numbers."""
    return joined([(MANIFEST, f'entry = "{_ENTRY}"\n'), (_ENTRY, _ENTRY_TEXT), ("submission.py", source)])
