"""Tokens, OpenAPI description, command line."""

import asyncio
import contextlib
import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from evaluator import schema
from evaluator.commands.main import warpgrade
from evaluator.errors import UsageError
from evaluator.service import http_door, tokens
from evaluator.service.gate import OF_A_CLIENT, PartsResponse, Turns
from evaluator.service.server import Address, listening
from evaluator.service.tokens import Tokens, add_token, revoke_tokens
from tests.service.conftest import TOP


def test_the_file_of_tokens_is_private_and_holds_no_token(tmp_path):
    path = tmp_path / "new" / "tokens"
    made = [add_token(path, client) for client in ("alice", "bob", "alice")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(token in path.read_text() for token in made)
    assert len(set(made)) == 3
    read = Tokens(path)
    assert [read.client_of(token) for token in made] == ["alice", "bob", "alice"]
    assert [read.client_of(token) for token in ("", made[0][:-1], made[0] + " ", "\ud800")] == [None] * 4
    assert revoke_tokens(path, "alice") == 2
    assert path.stat().st_mode & 0o777 == 0o600
    assert [read.client_of(token) for token in made] == [None, "bob", None]
    with pytest.raises(UsageError, match="no token"):
        revoke_tokens(path, "alice")


def test_every_hash_is_compared(tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    token = add_token(path, "first")
    add_token(path, "second")
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: compared.append(one) or one == other)
    assert Tokens(path).client_of(token) == "first"
    assert len(compared) == 2


@pytest.mark.parametrize("name", ["", "a b", "../x", "a\nsha256:", "x" * 65, ".hidden"])
def test_an_invalid_name_of_a_client_is_refused(tmp_path, name):
    with pytest.raises(UsageError):
        add_token(tmp_path / "tokens", name)
    assert not (tmp_path / "tokens").exists()


def test_a_public_or_foreign_or_broken_file_of_tokens_is_refused(tmp_path):
    path = tmp_path / "tokens"
    with pytest.raises(UsageError, match="cannot read"):
        Tokens(path)
    path.touch(0o600)
    with pytest.raises(UsageError, match="has no token"):
        Tokens(path)
    add_token(path, "alice")
    path.chmod(0o640)
    for use in (lambda: Tokens(path), lambda: add_token(path, "bob"), lambda: revoke_tokens(path, "alice")):
        with pytest.raises(UsageError, match="other users"):
            use()
    path.chmod(0o600)
    path.write_text(path.read_text() + "alice secret\n")
    with pytest.raises(UsageError, match="line 2"):
        Tokens(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(UsageError):
        add_token(link, "bob")


def test_of_two_changes_at_the_same_time_neither_is_lost(tmp_path, monkeypatch):
    """Otherwise a revoked token might be valid again."""
    path = tmp_path / "tokens"
    for client in ("alice", "bob", "carol"):
        add_token(path, client)
    threads = [
        threading.Thread(target=revoke_tokens, args=(path, "bob")),
        threading.Thread(target=add_token, args=(path, "dave")),
    ]
    write = tokens._write

    def write_late(*arguments):
        monkeypatch.setattr(tokens, "_write", write)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.3)  # Both wait for the lock, or both are done.
        write(*arguments)

    monkeypatch.setattr(tokens, "_write", write_late)
    monkeypatch.setattr(tokens, "_LOCK_S", 300.0)
    revoke_tokens(path, "alice")
    for thread in threads:
        thread.join(60)
    assert sorted(line.split()[1] for line in path.read_text().splitlines()) == ["carol", "dave"]


def test_a_lock_that_another_program_holds_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "_LOCK_S", 0.05)
    with tokens._locked(tmp_path), pytest.raises(UsageError, match="locks the folder"):
        add_token(tmp_path / "tokens", "alice")
    add_token(tmp_path / "tokens", "alice")


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"), [(1024, 524288, (2000, 524288)), (256, -1, (2000, -1)), (4096, 4096, None)]
)
def test_the_service_may_open_more_files_than_it_has_connections(monkeypatch, soft, hard, wanted):
    """Otherwise connections alone could keep workers and journal from opening files."""
    found = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: found.append(limits))
    http_door._allow_open_files()
    assert found == ([] if wanted is None else [wanted])


def test_a_low_limit_of_open_files_is_told(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (512, 1024))
    with pytest.raises(UsageError, match="2000 open files, and may have 1024"):
        http_door._allow_open_files()


def test_a_card_is_sent_in_parts_and_holds_its_turn_until_the_last():
    content = bytes(range(256)) * 1000
    sent = []

    async def program():
        turns, may_send = Turns(), asyncio.Event()

        async def send(message):
            await may_send.wait()
            sent.append(message)

        async def respond():
            async with contextlib.AsyncExitStack() as held:
                await held.enter_async_context(turns.turn("alice"))
                response = PartsResponse(content, "application/json", held.pop_all())
            await response({}, None, send)

        async def others_turn(client):
            async with turns.turn(client):
                pass

        running = [asyncio.create_task(respond()) for _ in range(OF_A_CLIENT)]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(others_turn("alice"))
        await others_turn("bob")
        await asyncio.sleep(0.05)
        assert not waiting.done()  # All turns of the client are held by cards on their way.
        may_send.set()
        await asyncio.gather(waiting, *running)

    asyncio.run(program())
    parts = [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert sum(map(len, parts)) == OF_A_CLIENT * len(content)
    assert max(map(len, parts)) <= 64 << 10


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_full_disk_leaves_the_file_of_tokens_as_before(tmp_path, monkeypatch, call):
    path = tmp_path / "tokens"
    token = add_token(path, "alice")
    running = Tokens(path)

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for use in (lambda: add_token(path, "bob"), lambda: revoke_tokens(path, "alice")):
        with monkeypatch.context() as full:
            if call == "fsync":
                full.setattr("os.fsync", fail)
            else:
                full.setattr(tokens, "_write", fail)
            with pytest.raises(UsageError, match="No space left"):
                use()
        assert [each.name for each in tmp_path.iterdir()] == ["tokens"]
    assert running.client_of(token) == Tokens(path).client_of(token) == "alice"


def test_a_change_that_keeps_size_and_time_of_the_file_is_noticed(tmp_path):
    path = tmp_path / "tokens"
    token = add_token(path, "alice")
    running = Tokens(path)
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # The clock of a file system has ticks.
        path.write_text(f"sha256:{'0' * 64} alice\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert running.client_of(token) is None


def test_a_file_that_takes_the_place_of_the_checked_one_is_refused(tmp_path, monkeypatch):
    path, public = tmp_path / "tokens", tmp_path / "public"
    add_token(path, "alice")
    add_token(public, "mallory")
    public.chmod(0o666)
    real = os.open

    def late(name, *arguments, **named):
        if name == path and public.exists():
            public.replace(path)
        return real(name, *arguments, **named)

    monkeypatch.setattr("os.open", late)
    with pytest.raises(UsageError, match="other users"):
        Tokens(path)


def test_the_description_has_the_schema_of_the_card_and_every_route(shared):
    status, _, body = shared.ask("GET", "/openapi.json", shared.alice)
    described = json.loads(body)
    assert status == 200
    fields = schema.schema(schema.SchemaName.SCORECARD)["$defs"]["Scorecard"]["properties"]
    found = described["components"]["schemas"]["Scorecard"]["properties"]
    assert found.keys() == fields.keys()
    for path, methods in described["paths"].items():
        for method in methods:
            asked = shared.ask(method.upper(), path.format(grade="x"), shared.alice)
            assert asked[0] != 405, path
    named = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', body.decode()))
    assert named <= described["components"]["schemas"].keys()


def test_documents_of_the_service_fit_their_description(shared):
    from jsonschema import Draft202012Validator

    described = json.loads(shared.ask("GET", "/openapi.json", shared.alice)[2])
    grade = shared.submit(shared.alice, "# 0 described")
    final = shared.wait(shared.alice, grade["id"])
    card = json.loads(shared.ask("GET", f"/v1/grades/{grade['id']}/card", shared.alice)[2])
    refusal, page, problems = (
        json.loads(shared.ask("GET", path, shared.alice)[2]) for path in ("/v1/grades/x", "/v1/grades", "/v1/problems")
    )
    for name, document in [
        *(("Grade", grade), ("Grade", final), ("Scorecard", card), ("Refusal", refusal)),
        *(("GradePage", page), ("ProblemList", problems)),
    ]:
        wanted = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
        assert [each.message for each in Draft202012Validator(wanted).iter_errors(document)] == [], name


def run(*arguments, **environment):
    return CliRunner().invoke(warpgrade, [*map(str, arguments)], env={**environment}, standalone_mode=False)


def test_a_token_of_the_command_line_is_for_the_default_service(tmp_path):
    made = run("token", "alice", XDG_STATE_HOME=str(tmp_path))
    assert made.exit_code == 0
    path = tmp_path / "warpgrade" / "service" / "tokens"
    assert Tokens(path).client_of(made.stdout.strip()) == "alice"
    assert path.parent.stat().st_mode & 0o077 == 0
    run("token", "alice", XDG_STATE_HOME=str(tmp_path))
    run("token", "bob", XDG_STATE_HOME=str(tmp_path))
    assert run("token", "--list", XDG_STATE_HOME=str(tmp_path)).stdout == "alice 2\nbob 1\n"
    with pytest.raises(UsageError, match="no client is named"):
        raise run("token", XDG_STATE_HOME=str(tmp_path)).exception
    for client in ("alice", "bob"):
        assert run("token", client, "--revoke", XDG_STATE_HOME=str(tmp_path)).exit_code == 0
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--state", "x"], "--state needs --http"),
        (["--require-own-kernel", "0.5"], "--require-own-kernel needs --http"),
        (["--allow-problem-text"], "--allow-problem-text needs --http"),
        (["--ray", "auto"], "--ray needs --http"),
        (["--http", "127.0.0.1:0", "--stop"], "--stop has no effect with --http"),
        (["--http", "127.0.0.1:0", "--idle-minutes", "1"], "--idle-minutes has no effect with --http"),
        (["--http", "127.0.0.1:0", "--sandbox", "none"], "only in the sandbox"),
        (["--http", "8000"], "is not HOST:PORT"),
        (["--http", "localhost:99999"], "is not HOST:PORT"),
        (["--http", "127.0.0.1:0"], "cannot read the token file"),
    ],
)
def test_a_wrong_use_of_the_command_is_told(tmp_path, arguments, message):
    found = run("serve", *arguments, XDG_STATE_HOME=str(tmp_path))
    assert isinstance(found.exception, UsageError)
    assert message in found.exception.message


def run_process(*command):
    return subprocess.run([*map(str, command)], cwd=TOP, capture_output=True, text=True, check=False)


def test_a_second_service_of_the_state_or_the_port_is_refused(shared, tmp_path):
    command = [sys.executable, "-m", "tests.service.fake_service"]
    again = run_process(*command, shared.state, 0)
    assert "another service uses" in again.stderr
    add_token(tmp_path / "tokens", "alice")
    tmp_path.chmod(0o700)
    other = run_process(*command, tmp_path, shared.port)
    assert "cannot listen" in other.stderr
    tmp_path.chmod(0o755)
    public = run_process(*command, tmp_path, 0)
    assert "other users can reach the state folder" in public.stderr


def test_responses_are_sent_at_once():
    """A socket without the protocol's number has no TCP_NODELAY, which costs 40 ms in a grade."""
    with listening(Address("127.0.0.1", 0), "") as listener:
        assert listener.proto == socket.IPPROTO_TCP
