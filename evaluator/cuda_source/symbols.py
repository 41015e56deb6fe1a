"""Link interface between the halves of a split build, read from `nm -C` listings of the objects."""

import re
from collections.abc import Collection, Iterator

from evaluator.cuda_source.declarations import NotSplittable

_UNSPEAKABLE = re.compile(r"\{lambda|'lambda|\(anonymous|\{unnamed|\{default")
_LIBRARIES = ("at::", "c10::", "torch::", "std::", "caffe2::", "warpgrade::", "operator ", "__gnu_cxx::")


def symbols(listing: str) -> list[str]:
    """Return the demangled names of an nm listing.

    >>> symbols("                 U void k<float>(float*)")
    ['void k<float>(float*)']
    """
    return [match[1] for line in listing.splitlines() if (match := re.match(r"\s*(?:[0-9a-f]+\s+)?\w (.+)$", line))]


def instantiations(undefined: str, templates: Collection[str]) -> list[str]:
    """List the kernel template instantiations called by a host half. Raises NotSplittable.

    >>> instantiations(" U void ns::k<float, 4>(float*)", {"k"})
    ['ns::k<float, 4>']
    """
    names = []
    for symbol in symbols(undefined):
        name = _function_name(symbol)
        if symbol.startswith("void ") and name.endswith(">") and _base(name) in templates:
            if _UNSPEAKABLE.search(symbol):
                raise NotSplittable("a kernel of a type without a name")
            names.append(name)
    return names


def missing(undefined: str, defined: str, own: Collection[str]) -> list[str]:
    """List the submission's own symbols that a host half needs and the device half lacks.

    A shared library with a missing symbol links but fails on import.
    """
    defined_symbols = set(symbols(defined))
    return [symbol for symbol in symbols(undefined) if symbol not in defined_symbols and _is_own(symbol, own)]


def _is_own(symbol: str, own: Collection[str]) -> bool:
    if symbol.startswith("warpgrade_symbol_"):
        return True
    name = _function_name(symbol)
    return name != symbol and not name.startswith(_LIBRARIES) and _base(name) in own


def _function_name(symbol: str) -> str:
    """Strip the parameters (the last brackets) and the return type of templates.

    >>> _function_name("float* at::TensorBase::data_ptr<float>() const")
    'at::TensorBase::data_ptr<float>'
    """
    symbol = _without_suffixes(symbol)
    end = len(symbol)
    depth = 0
    if symbol.endswith(")"):
        for end in range(len(symbol) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(symbol[end], 0)
            if depth == 0:
                break
    name = symbol[:end]
    return name if name.startswith("operator ") else name[_last_space(name) + 1 :]


def _without_suffixes(symbol: str) -> str:
    """Strip suffixes behind the parameters.

    >>> _without_suffixes("f(int) const [clone .cold]")
    'f(int)'
    """
    end = len(symbol)
    while symbol.endswith("]", 0, end) and (start := symbol.rfind("[", 0, end)) >= 0:
        if not symbol.startswith(" [clone ", start - 1):
            break
        end = start - 1
    for suffix in (" &&", " &", " const"):
        end -= len(suffix) if symbol.endswith(suffix, 0, end) else 0
    return symbol[:end]


def _last_space(name: str) -> int:
    """Return the index of the last space outside template arguments; -1 without such a space."""
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(name[index], 0)
        if depth == 0 and name[index] == " ":
            return index
    return -1


def qualified(symbol: str) -> str:
    """Strip parameters, return type and template arguments from a demangled function name.

    >>> qualified("void ns::k<float, 4>(float*)")
    'ns::k'
    """
    return "".join(_outside_of_templates(_function_name(symbol)))


def _base(name: str) -> str:
    """Strip namespaces and template arguments."""
    return "".join(_outside_of_templates(name)).rpartition("::")[2]


def _outside_of_templates(name: str) -> Iterator[str]:
    depth = 0
    for character in name:
        depth += character == "<"
        if depth == 0:
            yield character
        depth -= character == ">"
