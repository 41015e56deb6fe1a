"""KernelBench's files from an archive, its address or a clone: whole and of the right content, or not at all."""

import hashlib
import http.server
import io
import shutil
import tarfile
import threading

import pytest

from evaluator.catalog import kernelbench_files, list_problems
from evaluator.catalog.kernelbench import SmallSize
from evaluator.catalog.kernelbench_files import get_files
from evaluator.commands import main as cli
from evaluator.errors import InfraError, ProblemError, UsageError

TEXT = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
FILES = {f"level{level}/{number}_X": f"{TEXT}# {level} {number}\n".encode() for level in (1, 2) for number in (1, 2)}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    table = {hashlib.sha256(content).hexdigest(): SmallSize(name, {}) for name, content in FILES.items()}
    monkeypatch.setattr(kernelbench_files, "shipped_small_sizes", lambda: table)


def packed(path, files, *extra):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"KernelBench-0/KernelBench/{name}.py")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member, content in extra:
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def archive(tmp_path):
    return packed(tmp_path / "kb.tar.gz", FILES)


def written(folder):
    return {str(path.relative_to(folder)).removesuffix(".py"): path.read_bytes() for path in folder.rglob("*.py")}


def test_an_archive_its_address_and_a_clone_give_the_same_files(archive, tmp_path):
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    for number, source in enumerate([archive, archive.as_uri(), tmp_path / "unpacked/KernelBench-0"]):
        folder = tmp_path / f"out{number}"
        assert get_files(str(source), folder) == len(FILES)
        assert written(folder) == FILES
        assert [problem.name for problem in list_problems(folder).problems] == list(FILES)


def test_a_second_time_writes_nothing_and_overwrites_nothing(archive, tmp_path):
    folder = tmp_path / "out"
    get_files(str(archive), folder)
    assert get_files(str(archive), folder) == len(FILES)
    (folder / "level1/1_X.py").write_text("mine")
    (folder / "level2/2_X.py").unlink()
    with pytest.raises(UsageError, match=r"1_X\.py has other content"):
        get_files(str(archive), folder)
    assert (folder / "level1/1_X.py").read_text() == "mine"
    assert not (folder / "level2/2_X.py").exists()


@pytest.mark.parametrize("change", [{"level1/1_X": b"other"}, {"level1/1_X": None}])
def test_a_file_of_other_content_or_none_writes_nothing(change, tmp_path):
    files = {name: content for name, content in (FILES | change).items() if content is not None}
    with pytest.raises(
        UsageError, match=r"1 of KernelBench's 4 files are missing in .* or have other content: level1/1_X"
    ):
        get_files(str(packed(tmp_path / "kb.tar.gz", files)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_and_paths_of_an_archive_lead_nowhere(tmp_path):
    link = tarfile.TarInfo("a/KernelBench/level1/1_X.py")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    above = tarfile.TarInfo("../../KernelBench/level9/../1_Y.py")
    source = packed(tmp_path / "kb.tar.gz", FILES, (link, b""), (above, b""))
    get_files(str(source), tmp_path / "out")
    assert written(tmp_path / "out") == FILES


def test_an_archive_that_is_far_too_large_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(kernelbench_files, "_MOST_ARCHIVE_BYTES", 100_000)
    bomb = tarfile.TarInfo("zeros")
    bomb.size = 200_000
    with pytest.raises(UsageError, match="is larger than"):
        get_files(str(packed(tmp_path / "kb.tar.gz", {}, (bomb, bytes(bomb.size)))), tmp_path / "out")


def test_what_is_no_archive_is_told(tmp_path, archive):
    (tmp_path / "text").write_text("text")
    (tmp_path / "cut").write_bytes(archive.read_bytes()[:-100])
    for name in ("text", "cut"):
        with pytest.raises((ProblemError, UsageError)):
            get_files(str(tmp_path / name), tmp_path / "out")
    with pytest.raises(UsageError, match="cannot read"):
        get_files(str(tmp_path / "nothing"), tmp_path / "out")


def test_only_https_is_asked(tmp_path):
    for address in ("http://127.0.0.1:9/", "ftp://127.0.0.1:9/", "data://x"):
        with pytest.raises(UsageError, match="is no address of https"):
            get_files(address, tmp_path / "out")


def test_an_address_that_leads_to_http_is_refused(tmp_path, archive, monkeypatch):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(archive.read_bytes())

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        with pytest.raises(UsageError, match="which is no address of https"):
            list(kernelbench_files._files_at(address))
        thread.join()


def test_without_a_network_the_command_says_from_where(tmp_path, monkeypatch, capsys):
    missing = (tmp_path / "nothing.tar.gz").as_uri()
    with pytest.raises(InfraError, match="cannot fetch"):
        get_files(missing, tmp_path / "out")
    monkeypatch.setattr(kernelbench_files, "ARCHIVE", missing)
    monkeypatch.chdir(tmp_path)
    assert cli.run(["problems", "get", "kernelbench"]) == 3
    said = capsys.readouterr().err
    assert f"git -C KernelBench checkout {kernelbench_files.COMMIT}" in said
    assert "warpgrade problems get kernelbench --from KernelBench" in said
    assert not (tmp_path / "kernelbench").exists()


def test_the_command_says_what_comes_next(tmp_path, archive, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["problems", "get", "kernelbench", "--from", str(archive)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("kernelbench: 4 problems of kernelbench, as at commit ")
    assert said.endswith("next: warpgrade batch runs/NAME --run NAME --problems kernelbench\n")
    assert written(tmp_path / "kernelbench") == FILES
