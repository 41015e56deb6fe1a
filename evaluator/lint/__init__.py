"""Static analysis of a submission's text. Results are findings, never verdicts: every pattern has honest uses.

`lint.py` analyses a text inside a confined child process, because some texts crash Python's own parser. The judge
starts the child through `lint_in_sandbox.py`. No module of the package imports torch.
"""
