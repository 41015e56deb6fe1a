"""Problems of one's own, for all tests of the catalog."""

import pytest

from tests.unit.catalog.texts import REFERENCE, TOML


@pytest.fixture
def own(tmp_path):
    """Write a problem of one's own, `scale` unless told otherwise; `workload` is the text of its workload.jsonl."""

    def write(toml=TOML, reference=REFERENCE, name="scale", workload=None):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "problem.toml").write_text(toml)
        (folder / "reference.py").write_text(reference)
        if workload is not None:
            (folder / "workload.jsonl").write_text(workload)
        return folder

    return write
