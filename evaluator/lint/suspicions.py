"""Side activities in Python code: streams, threads, files, network, patches, interpreter internals; text for a reader.

The reader is a reviewer, a grader, or a language model acting as judge. The verdict is mechanical and depends on no
reader. A later reader of the submission should know about such text.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence

from evaluator.cuda_source.lexer import Kind
from evaluator.findings import Code
from evaluator.lint.embedded import EmbeddedCode, docstrings, texts
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import DottedNames, word_set
from evaluator.lint.reachable import Body, Module
from evaluator.protocol.submission_files import MANIFEST, SubmissionFile, parts, python_files

_CALLS: dict[Code, tuple[str, ...]] = {
    Code.SECOND_STREAM: ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.ExternalStream", "torch.Stream"),
    Code.THREADS: (
        *("threading.Thread", "threading.Timer", "_thread.start_new_thread", "multiprocessing.", "subprocess."),
        *("concurrent.futures.", "torch.multiprocessing.", "asyncio.to_thread", "asyncio.create_subprocess_exec"),
        *("asyncio.create_subprocess_shell", "os.fork", "os.forkpty", "os.system", "os.popen", "pty."),
        *("os.spawnl", "os.spawnv", "os.posix_spawn", "os.posix_spawnp", "os.execv", "os.execve", "os.execl"),
    ),
    Code.FILES: (
        *("open", "io.open", "os.open", "os.remove", "os.unlink", "os.rename", "os.mkdir", "os.makedirs"),
        *("os.listdir", "os.walk", "os.scandir", "os.memfd_create", "glob.", "shutil.", "tempfile.", "mmap."),
        *("torch.save", "torch.load", "numpy.save", "numpy.load", "pickle.load", "pickle.dump", "shelve.", "sqlite3."),
    ),
    Code.NETWORK: (
        *("socket.", "urllib.", "http.", "requests.", "ftplib.", "smtplib.", "asyncio.open_connection"),
        *("torch.hub.", "huggingface_hub."),
    ),
    Code.INTERNALS: (
        *("sys._getframe", "sys.settrace", "sys.setprofile", "inspect.stack", "inspect.currentframe"),
        *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "ctypes.", "cffi.", "atexit.", "signal."),
        *("os._exit", "os.kill", "os.killpg", "os.abort", "sys.exit", "eval", "exec", "faulthandler."),
    ),
}
"""Functions by full name. A trailing dot denotes a whole module."""
_EXACT = {name: code for code, names in _CALLS.items() for name in names if not name.endswith(".")}
_MODULES = {name[:-1]: code for code, names in _CALLS.items() for name in names if name.endswith(".")}
_FILE_METHODS = frozenset(("write_text", "write_bytes", "read_text", "read_bytes"))
_WORDS = {
    Code.SECOND_STREAM: "creates or enters another stream",
    Code.THREADS: "starts a thread or a process",
    Code.FILES: "uses files",
    Code.NETWORK: "uses the network",
    Code.INTERNALS: "reaches into the interpreter or its process",
}
_SETTINGS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.", "warnings.", "logging.")
"""Attributes intended for assignment."""
_OWN = ("self", "ctx", "cls")
_OF_TENSORS = word_set("""
    to cpu cuda numpy item tolist clone detach contiguous data_ptr shape dtype device size stride numel float double
    __class__ __torch_function__ __torch_dispatch__
    """)


def surroundings(module: Module) -> Iterator[Remark]:
    """Find system calls by full name."""
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        dotted = module.names.dotted(node.func)
        code = None if dotted is None else _code_of(dotted, module.names)
        if code is not None and dotted is not None:
            yield Remark(code, node.lineno, f"{shown(dotted)} {_WORDS[code]}")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _FILE_METHODS:
            yield Remark(Code.FILES, node.lineno, f"{node.func.attr} {_WORDS[Code.FILES]}")


def _code_of(dotted: str, names: DottedNames) -> Code | None:
    if "." not in dotted:
        return _EXACT.get(dotted)
    while dotted and dotted.partition(".")[0] in names.sources:
        if dotted in _EXACT:
            return _EXACT[dotted]
        if dotted in _MODULES:
            return _MODULES[dotted]
        dotted = dotted.rpartition(".")[0]
    return None


def patches(module: Module, bodies: list[Body]) -> Iterator[Remark]:
    """Find assignments to foreign attributes: of imported modules and classes, and of tensors."""
    for node in module.nodes:
        for target in _targets(node):
            if (owner := _foreign(target, module.names)) is not None:
                yield Remark(Code.PATCHED, target.lineno, f"replaces {shown(owner)}")
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[ast.expr() as thing, *_]):
                if (owner := _imported(thing, module.names)) is not None:
                    yield Remark(Code.PATCHED, node.lineno, f"replaces an attribute of {shown(owner)}")
                elif (
                    isinstance(thing, ast.Name) and thing.id not in _OWN and not isinstance(node.args[1], ast.Constant)
                ):
                    yield Remark(Code.PATCHED, node.lineno, f"sets attributes of {shown(thing.id)} by name")
            case _:
                continue
    yield from _on_one_object(bodies)
    for name, definition in module.classes.items():
        if any(module.names.dotted(base) == "torch.Tensor" for base in definition.bases):
            yield Remark(Code.PATCHED, definition.lineno, f"{shown(name)} is a subclass of torch.Tensor")


def _on_one_object(bodies: list[Body]) -> Iterator[Remark]:
    """Find methods assigned to a single tensor object."""
    for target in (target for body in bodies for node in ast.walk(body) for target in _targets(node)):
        match target:
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                if attr in _OF_TENSORS and name not in _OWN:
                    yield Remark(Code.PATCHED, target.lineno, f"replaces {shown(name)}.{attr} on one object")
            case _:
                continue


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case _:
            return []


def _foreign(target: ast.expr, names: DottedNames) -> str | None:
    """Return the full name of a replaced foreign attribute; None for the submission's own targets."""
    match target:
        case ast.Attribute(value=value, attr=attr):
            name = _imported(value, names)
            full = f"{name}.{attr}"
            return None if name is None or full.startswith(_SETTINGS) else full
        case ast.Subscript(value=value):
            name = names.dotted(value)
            return name if name in ("sys.modules", "builtins.__dict__") else None
        case _:
            return None


def _imported(node: ast.expr, names: DottedNames) -> str | None:
    """Return the full name of an expression rooted in an import."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id not in names.imported:
        return None
    return names.dotted(node)


_READER = (
    r"(?:judge|grader|reviewer|evaluator|auditor|verifier|examiner|scorer|checker|llm|language model|"
    r"ai (?:assistant|agent|model)|assistant|chatgpt|claude|gpt)s?"
)
_PATTERNS = {
    "addresses a reader": (
        r"\b(?:to|dear|attention|hey|hello|note (?:to|for)|notice to|instructions? (?:to|for)|message (?:to|for)) "
        rf"(?:the |any |all |our )?{_READER}\b"
    ),
    "tells a reader what to ignore": (
        r"\b(?:ignore|disregard|forget|override)\W+(?:\w+\W+){0,3}"
        r"(?:instructions?|prompts?|rules|guidelines|criteria|findings)\b"
    ),
    "tells a reader who it is": rf"\byou are (?:now )?(?:an? |the )?(?:\w+ ){{0,2}}{_READER}\b",
    "asks for a verdict": (
        r"\b(?:mark|rate|score|grade|classify|label|approve|accept) "
        r"(?:this|it|the (?:submission|solution|code|kernel|answer|entry)) (?:as|with|at|to be|please|now)\b"
    ),
    "claims a verdict": (
        r"\b(?:this|the) (?:kernel|code|submission|solution|implementation|file|answer) (?:is|was|has been) "
        r"(?:already |fully |formally )*(?:verified|approved|reviewed|audited|certified|accepted)\b"
    ),
    "imitates a conversation with a model": (
        r"<\|?(?:im_start|im_end|system|endoftext|assistant|user)\|?>|\[/?inst\]"
        r"|^\W*(?:system|assistant|human|user) ?(?:prompt|message)? ?:"
    ),
}
_COMPILED = {kind: re.compile(pattern, re.MULTILINE) for kind, pattern in _PATTERNS.items()}
_STATUS_WORD = re.compile(
    r"(?i:\b(?:output|return|respond|reply|answer|say|print|report|verdict|status|result)\b\W{1,4}"
    r"(?:with |is |as |be )?)[\"'`]{0,3}(?:PASS(?:ED)?|CORRECT|APPROVED|ACCEPT(?:ED)?|VALID)\b"
)
_NAME_READER = re.compile(r"(?:^|_)(?:judge|grader|reviewer|llm|evaluator)(?:_|$)")
_NAME_VERDICT = re.compile(r"(?:^|_)(?:pass|passes|approve|approved|ignore|accept|verified|correct)(?:_|$)")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_MAX_PROSE = 1 << 16
_LEAST_PROSE = 8


def prompt_injection(
    source: str, nodes: Sequence[ast.AST], pieces: list[EmbeddedCode], invalid: Sequence[SubmissionFile]
) -> Iterator[Remark]:
    """Find addressed text in comments, strings, docstrings and names, in Python and embedded C++.

    `invalid` are Python files that do not parse: their whole text is prose.
    """
    prose = [*_comments(source), *_cpp_comments(pieces), *_whole(invalid)]
    prose += _whole(file for file in parts(source) if file.path == MANIFEST)
    code = {piece.first_line for piece in pieces}
    aside = docstrings(nodes)
    prose += [(node.lineno, text) for node, text in texts(nodes) if id(node) in aside or node.lineno not in code]
    yield from _names(nodes)
    for line, text in prose:
        if len(text) >= _LEAST_PROSE and (addressed := _addressed_text(text[:_MAX_PROSE])) is not None:
            yield Remark(Code.ADDRESSED_TEXT, line + addressed[1], addressed[0])
    for number, content in enumerate(source.split("\n"), 1):
        if (hidden := _INVISIBLE.search(content)) is not None:
            yield Remark(Code.ADDRESSED_TEXT, number, f"contains an invisible character (U+{ord(hidden[0]):04X})")


def _whole(files: Iterable[SubmissionFile]) -> Iterator[tuple[int, str]]:
    """Yield the text of files in pieces, with their first lines."""
    for file in files:
        line = file.lines_before + 1
        for start in range(0, len(file.text), _MAX_PROSE):
            piece = file.text[start : start + _MAX_PROSE]
            yield line, piece
            line += piece.count("\n")


def _addressed_text(text: str) -> tuple[str, int] | None:
    """Return the kind and line offset of addressed text; None for ordinary text."""
    plain = re.sub(r"[ \t#*/]+", " ", text)
    lowered = plain.lower()
    flat = lowered.replace("\n", " ")  # Sentences span lines.
    for kind, pattern in _COMPILED.items():
        if (match := pattern.search(flat) or pattern.search(lowered)) is not None:
            return f"{kind}: “{shown(match[0].strip())}”", lowered.count("\n", 0, match.start())
    if (match := _STATUS_WORD.search(plain)) is not None:
        return f"asks for a verdict: “{shown(match[0].strip())}”", plain.count("\n", 0, match.start())
    return None


def _names(nodes: Sequence[ast.AST]) -> Iterator[Remark]:
    """Find names with a message, such as `judge_please_approve`."""
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:_MAX_PROSE]).lower()
                if _NAME_READER.search(snake) and _NAME_VERDICT.search(snake):
                    yield Remark(Code.ADDRESSED_TEXT, node.lineno, f"the name {shown(name)} addresses a reader")
            case _:
                continue


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield Python comments with their first lines. Comments on consecutive lines form one text."""
    run: list[str] = []
    first = last = 0
    for line, text in _comment_lines(source):
        if run and line != last + 1:
            yield first, "\n".join(run)
            run = []
        first = line if not run else first
        last = line
        run.append(text)
    if run:
        yield first, "\n".join(run)


def _comment_lines(source: str) -> Iterator[tuple[int, str]]:
    for file in python_files(source):
        try:
            for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0] + file.lines_before, token.string
        except (tokenize.TokenError, SyntaxError, UnicodeError):
            continue  # Text after a tokenizer error is not Python.


def _cpp_comments(pieces: list[EmbeddedCode]) -> Iterator[tuple[int, str]]:
    """Yield C++ comments with their first lines. Comments separated by whitespace only form one text."""
    for piece in pieces:
        run: list[str] = []
        first = 0
        for token in piece.all_tokens:
            if token.kind is Kind.COMMENT:
                first = first if run else piece.line(token)
                run.append(token.text)
            elif token.kind is not Kind.SPACE:
                if run:
                    yield first, "\n".join(run)
                run = []
        if run:
            yield first, "\n".join(run)
