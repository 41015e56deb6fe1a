"""Import, construction and weights of the submission's `ModelNew`. All exceptions propagate."""

import codecs
import importlib.util
import io
import linecache
import sys
import tokenize
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils import cpp_extension

from evaluator.protocol.frames import Raised, RefusedKernel
from evaluator.protocol.frames.bounds import MOST_FUNCTIONS
from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.model_call import seed_all
from evaluator.protocol.submission_files import SINGLE_FILE, SubmissionFile, checked, extension_sources, parts
from evaluator.runner.extensions import FILES_FOLDER
from evaluator.runner.nvrtc import refused_source
from evaluator.runner.triton.compilation import interpreted_cause, refused_kernel

MODEL_FILE = "model.py"
_MODULE = "submission"
_MAX_MESSAGE = 8000
_MAX_LINES = 16
_MAX_NAME = 200
_MAX_CAUSES = 16
_MOST_NAMED = 4
_lines_before: dict[str, int] = {}
"""Files of the submission, with the number of lines before the file in the submission's text."""
_folders: list[str] = []
"""Folders of the submission's files, the innermost first: temporary names, left out of messages."""


class NoModelNew(Exception):
    """The imported submission defines no entry class."""


class _Loader(SourceFileLoader):
    """Loader that executes the text read by the judge, for any encoding declared in the text's first lines."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        super().__init__(name, str(path))
        self._text = text

    def get_code(self, _: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)

    def get_source(self, _: str) -> str:
        return self._text


def read_in(folder: Path, submission: str, model: str, entries: Sequence[str]) -> type:
    """Import the submission from `folder`, with the reference importable as `model`, and return the entry class.

    The class has the first possible name of `entries`.

    Execution, tracebacks, `inspect`, TorchScript and Triton all use the text `submission`.
    """
    (folder / MODEL_FILE).write_text(model, encoding="utf-8")
    roots = [root / inner for inner in (FILES_FOLDER, "") for root in (folder.resolve(), folder)]
    _folders[:] = [f"{root}/" for root in roots]
    sys.path.insert(0, str(folder))
    name, path, text = _MODULE, folder / SINGLE_FILE, submission
    if files := parts(submission):
        path, text = _unpack(folder / FILES_FOLDER, files)
        name = _module_name(path.relative_to(folder / FILES_FOLDER))
    else:
        path.write_bytes(_on_disk(submission))
        _lines_before[str(path)] = 0
    # Without a modification time, linecache never re-reads the file.
    linecache.cache[str(path)] = (len(text), None, _lines(text), str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, path, text))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return _entry_class(module, entries, str(folder / MODEL_FILE))


def _entry_class(module: ModuleType, entries: Sequence[str], model_path: str) -> type:
    """Return the first class of a module with one of the names `entries`.

    The reference's own class counts under the preferred name alone: a submission may import `Model` from the reference,
    and misspell the name of its own class.
    """
    reference = sys.modules.get(Path(MODEL_FILE).stem)
    of_reference = reference is not None and getattr(reference, "__file__", None) == model_path
    for name in entries:
        candidate = getattr(module, name, None)
        is_borrowed = of_reference and name != entries[0] and candidate is getattr(reference, name, None)
        if isinstance(candidate, type) and not is_borrowed:
            return candidate
    names = [name for name, value in vars(module).items() if _is_own_model(value, module)]
    defined = f"; it defines {', '.join(names[:_MOST_NAMED])}" if names else ""
    raise NoModelNew(f"the submission defines no class {' or '.join(entries)}{defined}"[:_MAX_MESSAGE])


def _is_own_model(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__


def _module_name(entry: Path) -> str:
    """Return the entry's name for imports by the other files. A name in use stays with the earlier module."""
    name = ".".join(entry.with_suffix("").parts)
    return _MODULE if name in sys.modules else name


def _unpack(root: Path, files: Sequence[SubmissionFile]) -> tuple[Path, str]:
    """Write the files of a submission, build the extension of its manifest, and return the entry: path and text."""
    manifest = checked(files)
    for file in files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_on_disk(file.text) if path.suffix == ".py" else file.text.encode())
        _lines_before[str(path)] = file.lines_before
    sys.path.insert(0, str(root))
    if (extension := manifest.extension) is not None:
        cpp_extension.load(
            name=extension.name,
            sources=[str(root / path) for path in extension_sources(manifest, files)],
            extra_cflags=extension.extra_cflags,
            extra_cuda_cflags=extension.extra_cuda_cflags,
            extra_ldflags=extension.extra_ldflags,
        )
    return root / manifest.entry, next(file.text for file in files if file.path == manifest.entry)


def _lines(text: str) -> list[str]:
    """Split a text like Python's file reader: universal newlines, and a newline at the end."""
    return io.StringIO(text if text.endswith("\n") else f"{text}\n", newline=None).readlines()


def _on_disk(text: str) -> bytes:
    """Return the file content of a text, in UTF-8.

    A text that declares another encoding gets a UTF-8 byte order mark. The mark contradicts the declaration, so a
    reader that follows the declaration fails instead of decoding other characters.
    """
    content = text.encode()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError:
        return content
    return content if encoding == "utf-8" else codecs.BOM_UTF8 + content


def construct(
    model_new: type, args: Sequence[Any], kwargs: dict[str, Any], *, weight_seed: int, mode: ModelMode, device: str
) -> Any:
    """Construct a model under a seed, put the model into `mode`, and move the model to `device`."""
    seed_all(weight_seed)
    model = model_new(*args, **kwargs)
    if isinstance(model, torch.nn.Module):
        _set_mode(model, mode)
        if device != "cpu":
            model.to(device)
    return model


def _set_mode(model: torch.nn.Module, mode: ModelMode) -> None:
    """Call `eval()` or `train(True)`, or neither: a submission's own `train` may do more, or raise."""
    match mode:
        case ModelMode.AS_CONSTRUCTED:
            pass
        case ModelMode.EVAL:
            model.eval()
        case ModelMode.TRAIN:
            model.train(True)  # noqa: FBT003 - torch's signature


def is_partly_in_evaluation(model: Any) -> bool:
    """Return whether a module of a submission's model is in evaluation mode; False if the model is of another kind.

    Attributes of a submission may be anything: `modules` a list, `training` a tensor.
    """
    try:
        return any(module.training is False for module in torch.nn.Module.modules(model))
    except Exception:  # noqa: BLE001 - nothing here is a fault of the submission
        return False


def difference_in_weights(model: Any, state: Mapping[str, torch.Tensor]) -> str | None:
    """Return how names, shapes or dtypes of `model` differ from the reference's `state`; None if they do not."""
    weights = own_state(model)
    missing, extra = sorted(state.keys() - weights.keys()), sorted(weights.keys() - state.keys())
    if missing or extra:
        differences = [f"missing: {', '.join(missing[:5])}"] if missing else []
        differences += [f"not in the reference: {', '.join(extra[:5])}"] if extra else []
        return "; ".join(differences)[:_MAX_MESSAGE]
    for name, tensor in state.items():
        if weights[name].shape != tensor.shape or weights[name].dtype != tensor.dtype:
            return (
                f"{name} is {weights[name].dtype} {list(weights[name].shape)}, "
                f"in the reference {tensor.dtype} {list(tensor.shape)}"
            )
    return None


@torch.no_grad()
def copy_weights(model: Any, state: Mapping[str, torch.Tensor]) -> str | None:
    """Copy the reference's `state` into `model`. If names or shapes differ, copy nothing and return the difference."""
    difference = difference_in_weights(model, state)
    if difference is None:
        weights = own_state(model)
        for name, tensor in state.items():
            weights[name].copy_(tensor)
    return difference


def own_state(model: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a submission's model by name; none without a module."""
    return dict(model.state_dict()) if isinstance(model, torch.nn.Module) else {}


def describe(error: BaseException) -> Raised:
    """Convert an exception to a frame: type, message, and the submission's own stack lines."""
    for path in _lines_before:
        linecache.checkcache(path)
    refused = refused_source(error) or _refused(error)
    if refused is not None:
        refused = replace(refused, reason=_without_folders(refused.reason))
    functions, missing = _stack(error)
    error = interpreted_cause(error)
    lines = [
        ((entry.lineno or 0) + _lines_before[entry.filename], (entry.line or "")[:500])
        for entry in traceback.extract_tb(error.__traceback__)
        if entry.filename in _lines_before
    ]
    if isinstance(error, SyntaxError) and (before := _lines_before.get(str(error.filename))) is not None:
        lines.append(((error.lineno or 0) + before, (error.text or "").rstrip()[:500]))
        message = str(error.msg)[:_MAX_MESSAGE]
        return Raised(kind=type(error).__name__[:200], message=message, lines=lines[-_MAX_LINES:], functions=functions)
    return Raised(
        kind=type(error).__name__[:200],
        message=_without_folders(_text(error)[:_MAX_MESSAGE]),
        lines=lines[-_MAX_LINES:],
        refused=refused,
        functions=functions,
        missing=missing,
    )


def _stack(error: BaseException) -> tuple[list[str], str]:
    """Return the functions on the stack of an exception, and the module of a failed import behind."""
    try:
        return _functions(error), _missing(error)
    except Exception:  # noqa: BLE001 - an exception of the submission's own class may have any attributes
        return [], ""


def _functions(error: BaseException) -> list[str]:
    """Return the functions on the stacks of an exception and its causes, without repetition: the last of the list."""
    names: dict[str, None] = {}
    for cause in _causes(error):
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            module = frame.f_globals.get("__name__")
            # A submission may give a module any object for a name.
            name = f"{module if type(module) is str else ''}.{frame.f_code.co_qualname}"
            names[name.encode(errors="replace").decode()[:_MAX_NAME]] = None
    return list(names)[-MOST_FUNCTIONS:]


def _missing(error: BaseException) -> str:
    """Return the module of a failed import behind an exception; empty without a failed import."""
    names = (cause.name for cause in _causes(error) if type(cause) is ModuleNotFoundError)
    return next((name[:_MAX_NAME] for name in names if type(name) is str and name.isascii()), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and the exceptions behind."""
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _refused(error: BaseException) -> RefusedKernel | None:
    """Return the kernel refused by Triton's compiler, with its place in any file of the submission."""
    refused = None
    for path, before in _lines_before.items():
        refused = refused_kernel(error, path)
        if refused is None or refused.line:
            return refused and replace(refused, line=refused.line + before)
    return refused


def _without_folders(text: str) -> str:
    """Return a message with the names of files as the author knows the names: without the runner's folder."""
    for folder in _folders:
        text = text.replace(folder, "")
    return text


def _text(error: BaseException) -> str:
    """Convert an exception to text. The submission's `__str__` may fail."""
    try:
        return str(error).encode(errors="replace").decode()  # A lone surrogate does not fit into a frame.
    except Exception:  # noqa: BLE001 - the submission's __str__ may raise anything
        return "(its message cannot be printed)"
