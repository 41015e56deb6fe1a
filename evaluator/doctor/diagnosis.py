"""Checks of this machine's ability to grade, with a fix for everything missing."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.devices.gpu import gpus
from evaluator.errors import ExitCode, InfraError, SandboxUnavailable, ToolchainMissing
from evaluator.languages.language import Language
from evaluator.languages.registry import LANGUAGES, found_installation, install_command
from evaluator.records import DeviceKind, Record, SandboxMode, Toolchain

if TYPE_CHECKING:
    from evaluator.compile.warm_up import Preparations
    from evaluator.progress import ProgressReceiver


_GIB = 1 << 30
_PROGRAM_LIMIT_S = 120
_PROBE_BYTES = 1 << 16
CACHE_BYTES = _GIB  # the emulator's runtime and headers take 440 MiB (2 cores, no GPU; `warpgrade cache info`)
_TORCH = ((2, 11), (2, 14))  # from, and below
_PYTHON = ((3, 11), (3, 13))
_HELLO = """\
#include <concepts>
#include <iostream>
template <std::integral T> T twice(T x) { return x + x; }
int main() { std::cout << twice(21); }
"""


class Line(Record, frozen=True):
    """One prerequisite of grades. `needed_for` names the devices that require it."""

    name: str
    ok: bool
    needed_for: list[DeviceKind]
    found: str
    fix: str


class PreparedDevice(Record, frozen=True):
    """Whether all parts for a device were built in advance, and the missing parts."""

    device: DeviceKind
    ok: bool
    missing: list[str]


class InstalledLanguage(Record, frozen=True):
    """Kernel language: installed version, devices, and the command for the installation."""

    toolchain: Toolchain
    title: str
    ok: bool
    found: str
    runs_on: list[DeviceKind]
    fix: str


class Diagnosis(Record, frozen=True):
    """Results of all checks: usable devices, parts that a first grade must build, and installed kernel languages.

    `untried` names the `ready` devices without a sample grade: all parts are there, and no grade has proven them.
    """

    lines: list[Line]
    ready: list[DeviceKind]
    prepared: list[PreparedDevice]
    languages: list[InstalledLanguage] = []
    untried: list[DeviceKind] = []

    @property
    def exit_code(self) -> ExitCode:
        """Exit status: success if grades work at least on the CPU, which every machine has."""
        return ExitCode.CORRECT if DeviceKind.CPU in self.ready else ExitCode.INFRASTRUCTURE


_ALL_LAYERS = (
    "for --strict: Linux 6.12 or newer with user namespaces for ordinary users (sysctl "
    "user.max_user_namespaces; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0); a container with "
    "--security-opt seccomp=unconfined, apparmor=unconfined and systempaths=unconfined"
)
_EVERYWHERE = [DeviceKind.CPU, DeviceKind.EMULATED, DeviceKind.CUDA]
_GPU_ONLY = [DeviceKind.CUDA]
_LARGE_PACKAGES = ("torch", "sympy", "numpy")
"""Most of the 1800 modules read by PyTorch's import and its first operation on the meta device (2.13, counted)."""


def diagnose() -> Diagnosis:
    """Run all checks, including a compiler and a Python process; takes some seconds."""
    on_cpu = (_python, _torch, _packages, bytecode_line, compiler_line, _ninja, _sandbox, _memory, _disk, cache_line)
    lines = [check() for check in (*on_cpu, _gpu, _nvcc)]
    ready = [
        device
        for device in (DeviceKind.CUDA, DeviceKind.EMULATED, DeviceKind.CPU)
        if all(line.ok for line in lines if device in line.needed_for)
    ]
    return Diagnosis(lines=lines, ready=ready, prepared=_prepared(ready), languages=kernel_languages(), untried=ready)


def prepare(ready: Sequence[DeviceKind], progress: "ProgressReceiver") -> "Preparations":
    """Build in advance the parts that grades on the `ready` devices need. Raises InfraError if no device is ready."""
    from evaluator.compile import warm_up
    from evaluator.paths import cache_folder

    if not ready:
        raise InfraError("this machine cannot grade yet", hint="`warpgrade doctor` lists what is missing")
    return warm_up.make_ahead(warm_up.parts(ready, cache_folder()), cache_folder(), progress)


def _prepared(ready: Sequence[DeviceKind]) -> list[PreparedDevice]:
    if not ready:  # PyTorch may be broken and must not be imported.
        return []
    from evaluator.compile import warm_up
    from evaluator.paths import cache_folder

    missing: dict[DeviceKind, list[str]] = {}
    for part in warm_up.parts(ready, cache_folder()):
        names = missing.setdefault(part.device, [])
        if not warm_up.is_there(part):
            names.append(part.name)
    return [PreparedDevice(device=device, ok=not names, missing=names) for device, names in missing.items()]


def _line(name: str, result: str, *, fix: str, ok: bool, needed_for: list[DeviceKind] = _EVERYWHERE) -> Line:
    return Line(name=name, ok=ok, needed_for=needed_for, found=result, fix="" if ok else fix)


def _python() -> Line:
    version = sys.version_info[:2]
    version_text = f"{sys.version.split()[0]} at {sys.executable}"
    return _line("Python", version_text, ok=_PYTHON[0] <= version < _PYTHON[1], fix="use Python 3.11 or 3.12")


def _torch() -> Line:
    fix = "pip install 'torch>=2.11,<2.14'"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return _line("PyTorch", "not installed", ok=False, fix=fix)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if not _TORCH[0] <= numbers < _TORCH[1]:
        return _line("PyTorch", version, ok=False, fix=fix)
    # In a separate process: the import of a broken installation may crash.
    answer = _output([sys.executable, "-P", "-c", "import torch; print(torch.version.cuda or 'no CUDA')"])
    if answer is None:
        return _line("PyTorch", f"{version} cannot be imported", ok=False, fix=f"{fix} --force-reinstall")
    return _line("PyTorch", f"{version} ({answer})", ok=True, fix="")


def _packages() -> Line:
    from evaluator.submission.requirements import importable

    return _line("packages", f"submissions may import {', '.join(importable())}", ok=True, fix="", needed_for=[])


def bytecode_line() -> Line:
    """Check for Python's bytecode files. A container image built without them compiles the sources at each start.

    `import torch` takes 1.1 s on an H200 machine with bytecode, and 2.5 to 4 s without (docs/measured.md).
    """
    specs = [importlib.util.find_spec(name) for name in _LARGE_PACKAGES]
    files = {spec.name: Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None}
    compiled = {name: Path(importlib.util.cache_from_source(str(file))).exists() for name, file in files.items()}
    without = {name: file for name, file in files.items() if not compiled[name]}
    if not without:
        return _line("bytecode", f"compiled for {', '.join(files)}", ok=True, fix="", needed_for=[])
    folders = " ".join(str(file.parent) for file in without.values())
    fix = f"optional, saves seconds per grade: {sys.executable} -m compileall -q {folders}"
    return _line("bytecode", f"missing for {', '.join(without)}", ok=False, fix=fix, needed_for=[])


def compiler_line() -> Line:
    """Check for a compiler whose programs run."""
    from evaluator.toolchain.host_compiler import cxx

    fix = "install g++ 10 or newer (on Debian: apt install g++)"
    try:
        compiler = cxx()
    except (ToolchainMissing, OSError, subprocess.TimeoutExpired) as error:
        return _line("C++ compiler", str(error), ok=False, fix=fix)
    with tempfile.TemporaryDirectory(prefix="warpgrade-doctor-") as folder:
        source, program = Path(folder, "hello.cpp"), Path(folder, "hello")
        source.write_text(_HELLO, encoding="utf-8")
        built = _output([compiler.path, "-std=c++20", str(source), "-o", str(program)]) is not None
        works = built and _output([str(program)]) == "42"
    result = compiler.version if works else f"{compiler.version}: cannot compile and run C++20"
    return _line("C++ compiler", result, ok=works, fix=fix)


def _ninja() -> Line:
    from evaluator.toolchain.host_compiler import ninja

    try:
        path = ninja()
    except (ToolchainMissing, ImportError) as error:
        return _line("ninja", str(error), ok=False, fix="pip install ninja")
    version = _output([path, "--version"])
    return _line("ninja", version or f"{path} cannot be run", ok=version is not None, fix="pip install ninja")


def _sandbox() -> Line:
    from evaluator.sandbox.available_layers import Limits, choose_layers, examine, sandbox_facts

    machine = examine()
    try:
        layers = choose_layers(SandboxMode.FULL, machine)
    except SandboxUnavailable as error:
        return _line("sandbox", error.message, ok=False, fix=error.hint)
    facts = sandbox_facts(SandboxMode.FULL, machine, layers, Limits())
    result = f"{len(facts.layers)} layers active"
    if not facts.missing:
        return _line("sandbox", result, ok=True, fix="")
    result += f"; missing: {', '.join(facts.missing)}"
    # Grades work without the missing layers; only --strict refuses.
    return Line(name="sandbox", ok=True, needed_for=_EVERYWHERE, found=result, fix=_ALL_LAYERS)


def _memory() -> Line:
    import psutil

    free = psutil.virtual_memory().available
    limit = _container_limit_bytes()
    free = free if limit is None else min(free, limit)
    fix = "a compiler needs 1.3 GiB: close other programs, or raise the container's limit"
    return _line("free memory", _gib(free), ok=free >= 3 * _GIB, fix=fix)


def _container_limit_bytes() -> int | None:
    """Return the memory left within the container's limit, or None without a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return int(limit) - int(used)
    except (OSError, ValueError):
        return None


def _disk() -> Line:
    folder, fix = tempfile.gettempdir(), "free space, or set TMPDIR to a larger folder"
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return _line("disk", f"{folder}: {error.strerror}", ok=False, fix=fix)
    return _line("disk", f"{_gib(free)} in {folder}", ok=free >= 2 * _GIB, fix=fix)


def cache_line() -> Line:
    """Check whether builds can be cached. Without a cache, every grade builds everything again."""
    from evaluator.paths import cache_folder

    folder = cache_folder()
    fix = "every grade builds again: free space there, or set WARPGRADE_CACHE to a writable folder"
    try:
        # The first build creates the folder; until then, test the nearest existing parent.
        existing_folder = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.NamedTemporaryFile(dir=existing_folder, prefix=".warpgrade-probe-") as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
        free = shutil.disk_usage(existing_folder).free
    except OSError as error:
        message = f"{folder} is not writable: {error.strerror or error}"
        return _line("cache", message, ok=False, fix=fix, needed_for=[])
    return _line("cache", f"{_gib(free)} in {folder}", ok=free >= CACHE_BYTES, fix=fix, needed_for=[])


def _gpu() -> Line:
    names = [gpu.name for gpu in gpus()]
    result = ", ".join(names) if names else "no NVIDIA GPU is visible"
    fix = "for --device cuda only: a machine with an NVIDIA GPU and its driver"
    return _line("GPU", result, ok=bool(names), fix=fix, needed_for=_GPU_ONLY)


def _nvcc() -> Line:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    path = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    answer = _output([path, "--version"]) if path is not None else None
    release = next((line for line in (answer or "").splitlines() if "release" in line), "not found")
    fix = "for --device cuda only: install the CUDA toolkit and set CUDA_HOME"
    return _line("nvcc", release.strip(), ok=release != "not found", fix=fix, needed_for=_GPU_ONLY)


def _output(command: list[str]) -> str | None:
    """Run a program on this machine; return its output, or None on failure."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROGRAM_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"


def kernel_languages() -> list[InstalledLanguage]:
    """Return all languages but inline CUDA and C++: their compilers have separate lines."""
    return [_installed(language) for language in LANGUAGES if language.installation is not None]


def _installed(language: Language) -> InstalledLanguage:
    installation = found_installation(language)
    return InstalledLanguage(
        toolchain=language.toolchain,
        title=language.title,
        ok=installation is not None,
        found="not installed" if installation is None else installation.version,
        runs_on=[device for device in DeviceKind if device in language.runs_on],
        fix="" if installation is not None else install_command(language),
    )
