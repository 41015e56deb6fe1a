"""Allowlist of nvcc flags for submissions. As for g++, all other flags are refused."""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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


class NvccFlags(NamedTuple):
    """Submission's nvcc flags: kept, refused, and dropped in favour of the available GPU's architecture."""

    kept: list[str]
    refused: list[str]
    architectures: list[str]


class _Option(NamedTuple):
    """Option as written: name and value. The value may be a separate word."""

    name: str
    value: str | None

    @property
    def text(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


_ARCHITECTURE = frozenset(("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"))

_SWITCH = re.compile(
    r"""
      -O[0-3]?
    | -use_fast_math | --use_fast_math
    | -lineinfo | --generate-line-info | -g | --debug | -G | --device-debug
    | -(?:-?expt)-relaxed-constexpr | --?(?:expt-)?extended-lambda
    | -restrict | --restrict | -extra-device-vectorization | --extra-device-vectorization
    | -w | --disable-warnings | -res-usage | --resource-usage
    | -m64 | --m64 | -src-in-ptx | --source-in-ptx | -keep-device-functions | --keep-device-functions
    | -(?:-no)?-?display-error-number | -err-no | -no-err-no
    | --?Wno-deprecated-(?:gpu-targets|declarations) | --?W(?:reorder|default-stream-launch|missing-launch-bounds)
    | --?no-compress | --?allow-unsupported-compiler | -nohdinitlist | -nohdmoveforward
    | -l[\w.+-]+ | -L[\w./+-]+
    """,
    re.VERBOSE,
)
"""Switches without values. Libraries are allowed because compiling ignores them."""

_NUMBER, _BOOL = r"\d{1,6}", r"true|false"
_VALUES = {
    "--optimize": r"[0-3]",
    "-std": r"c\+\+\d\d",
    "-maxrregcount": _NUMBER,
    "-t": _NUMBER,
    "--threads": _NUMBER,
    "--split-compile": _NUMBER,
    "-ftz": _BOOL,
    "-prec-div": _BOOL,
    "-prec-sqrt": _BOOL,
    "-fmad": _BOOL,
    "-rdc": _BOOL,
    "--relocatable-device-code": _BOOL,
    "-brief-diag": _BOOL,
    "--brief-diagnostics": _BOOL,
    "-default-stream": r"legacy|null|per-thread",
    "-cudart": r"none|shared|static",
    "-ftemplate-depth": _NUMBER,
    "-ftemplate-backtrace-limit": _NUMBER,
    "-diag-suppress": r"\d+(?:,\d+)*",
    "-diag-warn": r"\d+(?:,\d+)*",
    "-diag-error": r"\d+(?:,\d+)*",
    "-Werror": r"[a-z-]+(?:,[a-z-]+)*",
    "-Xcudafe": r"--diag_(?:suppress|warn|error|remark)=\w+|--display_error_number",
    "-Xfatbin": r"-compress-all|-compress=(?:true|false)",
}
_LONG_NAMES = {"--compiler-options": "-Xcompiler", "--ptxas-options": "-Xptxas", "--fatbin-options": "-Xfatbin"}

# Macro values and host compiler words pass through a shell inside nvcc: macro values in double quotes, host words
# unquoted. nvcc 13.0 runs `-DN=$(command)`.
_MACRO = re.compile(r"\w+(?:=[^$`\\\n\r\0]*)?")
_FOLDER = re.compile(r"[\w./+-]+")
_HOST_WORD = re.compile(r"[\w=+./-]+")
_PTXAS = re.compile(
    r"-v | --verbose | -w | -O[0-4] | --opt-level(?:=[0-4])? | [0-4]"
    r" | (?:-dlcm | --def-load-cache | -dscm | --def-store-cache)(?:=\w\w)?"
    r" | --warn-on-(?:spills | local-memory-usage | double-precision-use) | -warn-(?:spills | lmem-usage)"
    r" | (?:--allow-expensive-optimizations | -allow-expensive-optimizations)(?:=(?:true|false))?"
    r" | (?:--maxrregcount | -maxrregcount)=\d+ | --register-usage-level=\d+ | --disable-optimizer-constants"
    r" | --fmad=(?:true|false) | --suppress-stack-size-warning | -lineinfo | -warn-double-usage",
    re.VERBOSE,
)


def nvcc_flags(flags: Iterable[str]) -> NvccFlags:
    """Classify a submission's nvcc flags. An option's value may be in the same word or in the next word.

    >>> nvcc_flags(["-O3", "-Xptxas", "-v", "-arch=sm_70", "-ccbin", "evil"])
    NvccFlags(kept=['-O3', '-Xptxas=-v'], refused=['-ccbin', 'evil'], architectures=['-arch=sm_70'])
    """
    sorted_flags = NvccFlags([], [], [])
    for option in _options(words(flags)):
        if option.name in _ARCHITECTURE:
            sorted_flags.architectures.append(option.text)
        elif _allowed(option):
            sorted_flags.kept.append(option.text)
        else:
            sorted_flags.refused.append(option.text)
    return sorted_flags


def _options(words: list[str]) -> Iterator[_Option]:
    """Join each option with its value."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if name[:2] in ("-D", "-U", "-I"):
            if len(word) == 2 and index < len(words):
                word += words[index]
                index += 1
            yield _Option(word, None)
        elif equals:
            yield _Option(name, value)
        elif _takes_value(name) and index < len(words):
            yield _Option(name, words[index])
            index += 1
        else:
            yield _Option(word, None)


def _takes_value(name: str) -> bool:
    return name in _ARCHITECTURE or _rule(name) is not None or _short(name) in ("-Xcompiler", "-Xptxas")


def _allowed(option: _Option) -> bool:
    name, value = option
    if value is None:
        return _allowed_word(name)
    if name[:2] in ("-D", "-U", "-I") and not name.startswith("--"):
        return _allowed_word(option.text)
    match _short(name):
        case "-Xcompiler":
            host = re.split(r"[,\s]+", value)
            return all(_HOST_WORD.fullmatch(word) for word in host) and not refused_compile_flags(host)
        case "-Xptxas":
            return all(_PTXAS.fullmatch(word) for word in re.split(r"[,\s]+", value))
        case _:
            rule = _rule(name)
            return rule is not None and re.fullmatch(rule, value) is not None


def _allowed_word(word: str) -> bool:
    match word[:2]:
        case "-D" | "-U":
            return _MACRO.fullmatch(word[2:]) is not None
        case "-I":
            return _FOLDER.fullmatch(word[2:]) is not None
        case _:
            return _SWITCH.fullmatch(word) is not None


def _short(name: str) -> str:
    return _LONG_NAMES.get(name, name)


def _rule(name: str) -> str | None:
    """Return the pattern of an option's values. Nearly all options have spellings with one or two dashes."""
    name = _short(name)
    return _VALUES.get(name) or _VALUES.get(name.removeprefix("-"))
