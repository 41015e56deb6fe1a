"""Static analysis of a submission's text. Results are findings, never verdicts: every pattern has honest uses.

`look.py` analyses a text inside a confined child process (`child.py`), because some texts crash Python's own parser.
The judge starts the child through `ask.py`. No module of the package imports torch.
"""
