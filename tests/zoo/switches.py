"""Replace functions of the judge by name: one that is gone is an error, and no switch that has no effect."""

import functools
from collections import Counter
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

import pytest


class Stale(Exception):
    """A switch replaces something that the judge does not have, or not as a function."""


class Function(NamedTuple):
    """A function of the judge: its name in a module or a class."""

    owner: ModuleType | type
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


class Patch(Protocol):
    """What a switch gets."""

    def setattr(self, owner: ModuleType | type, name: str, instead: Any) -> None:
        """Replace a function."""


class Switched:
    """Replaces functions, until `patch` is undone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def setattr(self, owner: ModuleType | type, name: str, instead: Any) -> None:
        """Replace a function.

        Raises:
            Stale: there is no such function.
        """
        _existing(Function(owner, name))
        self._patch.setattr(owner, name, instead)


class Survey:
    """Notes which functions a switch would replace, and replaces none."""

    def __init__(self) -> None:
        self.functions: list[Function] = []

    def setattr(self, owner: ModuleType | type, name: str, instead: Any) -> None:
        """Note a function.

        Raises:
            Stale: there is no such function.
        """
        function = Function(owner, name)
        _existing(function)
        self.functions.append(function)


def assign(instance: Any, **values: Any) -> None:
    """Give new values to attributes that an instance has.

    Raises:
        Stale: the instance lacks one.
    """
    for name, value in values.items():
        if not hasattr(instance, name):
            raise Stale(f"{type(instance).__name__} has no attribute {name}")
        setattr(instance, name, value)


def counted(patch: pytest.MonkeyPatch, functions: set[Function]) -> Counter[Function]:
    """Count the calls of functions, which otherwise work as ever, until `patch` is undone."""
    calls = Counter(dict.fromkeys(functions, 0))
    for function in functions:
        patch.setattr(function.owner, function.name, _counting(calls, function, _existing(function)))
    return calls


def _counting(calls: Counter[Function], function: Function, original: FunctionType) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[function] += 1
        return original(*args, **kwargs)

    return call


def _existing(function: Function) -> FunctionType:
    """Give the function that stands under its own name there; what a class inherits does not count."""
    found = vars(function.owner).get(function.name)
    if not isinstance(found, FunctionType):
        raise Stale(f"{function.owner.__name__} has no function {function.name}")
    return found
