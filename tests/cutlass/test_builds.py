"""CUTLASS and CuTe in submissions: the step that builds each form, and the build of each form."""

import tomllib
from pathlib import Path

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile import cuda_builder
from evaluator.compile.cuda_builder import kernel_headers
from evaluator.compile.precompiled import precompile
from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.source_files import source_files
from evaluator.cuda_source.split import split
from evaluator.languages.language import Mentions, included_headers
from evaluator.languages.registry import CUTLASS, found_installation
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.submission_files import HEADER_SUFFIXES
from evaluator.submission.read import read_submission
from evaluator.toolchain.nvcc import FRONT_ENDS_NAME
from tests.cuda_builds import ARCHITECTURE, has_nvcc, local_tool, requests_of, stand_ins

HERE = Path(__file__).parent
COLLECTIVE = HERE / "collective"
STEPS = {"simt_gemm": "light", "tensor_op_gemm": "light", "half_gemm": "light", "cute_gemm": "split"}


def request_of_folder() -> BuildRequest:
    """Return the request of the folder's manifest."""
    extension = tomllib.loads((COLLECTIVE / "submission.toml").read_text())["extension"]
    files = [SourceFile(name=path.name, text=path.read_text()) for path in sorted(COLLECTIVE.iterdir())]
    return BuildRequest(
        name=extension["name"],
        files=[file for file in files if file.name.endswith((".cpp", ".cu"))],
        headers=[file for file in files if Path(file.name).suffix in HEADER_SUFFIXES],
        extra_cuda_cflags=extension["extra_cuda_cflags"],
        with_cuda=True,
    )


@pytest.fixture
def request_of(tmp_path):
    """Return the build request of a form, by name."""

    def request(name):
        if name == COLLECTIVE.name:
            return request_of_folder()
        (found,) = requests_of(HERE / f"{name}.py", tmp_path)[1]
        return found

    return request


@pytest.mark.parametrize("name", [*STEPS, COLLECTIVE.name])
def test_every_form_is_recognised(request_of, name):
    request = request_of(name)
    included = frozenset().union(*(included_headers(file.text) for file in [*source_files(request), *request.headers]))
    assert CUTLASS.is_in(Mentions(frozenset(), included, has_kernel=True))


@pytest.mark.parametrize(("name", "step"), STEPS.items(), ids=STEPS)
def test_no_step_is_tried_in_vain(request_of, name, step):
    (text,) = [file.text for file in source_files(request_of(name)) if file.name == "cuda.cu"]
    if step == "split":
        assert "cute::" not in split(text).host
        return
    with pytest.raises(NotSplittable, match="cutlass in code of the host"):
        split(text)


def test_the_folder_is_one_submission():
    submission = read_submission(COLLECTIVE)
    assert "#@ file gemm.cuh" in submission.source


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")
@pytest.mark.skipif(found_installation(CUTLASS) is None, reason="CUTLASS is not installed: pip install nvidia-cutlass")
@pytest.mark.parametrize("name", [*STEPS, COLLECTIVE.name])
def test_nvcc_builds_every_form(request_of, tmp_path, name):
    tool = local_tool(stand_ins(tmp_path / "stand-ins"))
    if (step := STEPS.get(name, "light")) == "split":
        assert precompile(tool, tmp_path) is not None
    request = request_of(name)
    assert kernel_headers(request).folders
    cache = BuildCache(tmp_path / "cache")
    builder = cuda_builder.CudaBuilder(tool, cache, "", 900.0, lambda _: None, ARCHITECTURE, cache_root=tmp_path)
    result = builder.build(request)
    assert result.finding is None, result.unit.log
    assert f"step: {step}" in result.unit.log
    assert result.library.startswith(b"\x7fELF")
    assert FRONT_ENDS_NAME not in result.unit.log
    assert builder.build(request).unit.cached
