"""Analysis and rewriting of a build's C++ for the emulator in a confined child; the judge only joins the texts.

The analysis is Python code and takes about 20 us per character, more for hostile texts. The child has limits on time
and memory. `evaluator.emulator.unit` assembles the build from the result.
"""

from typing import Annotated

import msgspec

from evaluator.build.artefact import kernels_in_text
from evaluator.build.sources import source_files
from evaluator.emulator.device_code import device_code
from evaluator.emulator.rewriter import marks_returns
from evaluator.emulator.unit import Lacking, has_vectors, lacking_constructs, rewritten
from evaluator.protocol.frames import BuildRequest, Frame, SourceFile
from evaluator.protocol.frames.bounds import Name

_MOST_LACKING = 64


class FrontEnd(Frame, frozen=True):
    """Child: the rewritten sources, and facts about them.

    `device` holds the parts of CUDA files that nvcc can compile alone, `kernels` the names of defined kernels.
    """

    lacking: Annotated[list[Lacking], msgspec.Meta(max_length=_MOST_LACKING)]
    rewritten: Annotated[list[SourceFile], msgspec.Meta(max_length=256)]
    device: Annotated[list[SourceFile], msgspec.Meta(max_length=256)]
    kernels: Annotated[list[Name], msgspec.Meta(max_length=256)]
    marks_returns: bool
    vectors: bool


def front_end(request: BuildRequest) -> FrontEnd:
    """Analyse and rewrite the files of a build."""
    files = source_files(request)
    new = rewritten(files)
    parts = [SourceFile(file.name, device_code(file.text) or "") for file in files if file.name.endswith(".cu")]
    return FrontEnd(
        lacking=lacking_constructs(request)[:_MOST_LACKING],
        rewritten=new,
        device=[part for part in parts if part.text],
        kernels=[name[:1024] for name in kernels_in_text(files).names],
        marks_returns=marks_returns([file.text for file in new]),
        vectors=has_vectors(new),
    )
