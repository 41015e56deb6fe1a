"""Allowlist of compiler flags for submissions. All other flags are refused."""

import re
import shlex
from collections.abc import Iterable

_WORD = r"[\w.+=:/,@%-]+"

_COMPILE = re.compile(
    r"""
      -O[0-3sgz]?(?:fast)?
    | -std=(?:c|gnu)\+\+\w+ | --std=(?:c|gnu)\+\+\w+
    | -[DU]\w+(?:=[^\n\r\0]*)?
    | -I[\w./+-]+
    | -m(?!plugin)[\w.=+-]+
    | -f(?!plugin|dump|profile|auto-profile|compare-debug|diagnostics|use-ld|sanitize|debug-prefix|file-prefix)[\w=,+-]+
    | -W(?![alp],)[\w=+-]*
    | -w | -g[0-3]? | -pthread | -pipe | -ansi | -pedantic | -fPIC | -fopenmp | -fpermissive
    """,
    re.VERBOSE,
)
"""g++ flags: optimisation, language, macros, machine, code generation, warnings.

Excluded: -B, -specs, -wrapper, @FILE (other programs), -fplugin (code inside the compiler), -x, -include and -imacros
(files outside the submission), -o, -save-temps, -MF and -fdump (arbitrary output files), -Wl and -Wp and -Wa (arguments
of other programs).
"""

_LINK = re.compile(
    rf"-l[\w.+-]+ | -L{_WORD} | -pthread | -fopenmp | -O\d? | -s | -Wl,(?:-O\d|--as-needed|--no-as-needed)", re.VERBOSE
)


def words(flags: Iterable[str]) -> list[str]:
    """Split flags into words like a shell: PyTorch's builder passes flags through a shell.

    >>> words(["-O3 -Wall", "", "-DNAME='a b'"])
    ['-O3', '-Wall', '-DNAME=a b']
    """
    return [word for flag in flags for word in _cut(flag)]


def _cut(flag: str) -> list[str]:
    try:
        return shlex.split(flag)
    except ValueError:  # An unclosed quotation mark: treat the text as one word.
        return [flag]


def refused_compile_flags(flags: Iterable[str]) -> list[str]:
    """List the disallowed words of a compile.

    >>> refused_compile_flags(["-O3", "-march=native", "-fplugin=./x.so", "-B/tmp"])
    ['-fplugin=./x.so', '-B/tmp']
    """
    return [flag for flag in flags if not _COMPILE.fullmatch(flag)]


def refused_link_flags(flags: Iterable[str]) -> list[str]:
    """List the disallowed words of a link.

    >>> refused_link_flags(["-lm", "-Wl,-O1", "-Wl,--plugin,x"])
    ['-Wl,--plugin,x']
    """
    return [flag for flag in flags if not _LINK.fullmatch(flag)]
