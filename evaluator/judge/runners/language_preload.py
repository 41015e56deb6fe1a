"""Import of a submission's language in a lasting fork server, before the runners start."""

from evaluator.languages.by_text import uses_triton
from evaluator.protocol.triton_variables import names_variables
from evaluator.records import DeviceKind
from evaluator.sandbox import ForkServer

_TRITON = "evaluator.runner.triton.preloaded"


def prepare_for(source: str, device: DeviceKind, fork_server: ForkServer) -> None:
    """Import Triton in a fork server if the submission's text names Triton. Idle runners import Triton themselves."""
    if device is not DeviceKind.CPU and uses_triton(source) and not names_variables(source):
        fork_server.preload(_TRITON)
