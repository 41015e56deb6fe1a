"""What a submission's text alone shows. Findings, never a verdict: every one of these has an honest use.

`look.py` reads a text and says what it noticed; it runs in a confined child (`child.py`), because Python's own parser
can be brought down by a text, and the judge asks for it through `ask.py`. Nothing here imports torch.
"""
