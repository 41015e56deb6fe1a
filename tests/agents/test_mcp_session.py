"""An agent's session with the real package: a client of `mcp` on the pipes of `warpgrade mcp`."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.filterwarnings("default")
SOLUTION = Path(__file__).parents[2] / "solutions" / "relu" / "cuda_plain.py"
RIGHT = SOLUTION.read_text()
MISSPELT = RIGHT.replace("blockDim.x", "blockDimension.x")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
WRONG = RIGHT.replace("value <= 0.0f ? 0.0f : value;", "value;")


@pytest.fixture
def program(tmp_path):
    """The command line of the server, as a client's configuration has it."""
    script = tmp_path / "server.py"
    script.write_text("from evaluator.commands.main import main\nmain()\n")
    return [sys.executable, str(script), "mcp", "--device", "emulated"]


def said(result):
    (content,) = result.content
    return content.text


@pytest.mark.slow
def test_an_agent_writes_grades_and_mends_a_kernel(program):
    mcp = pytest.importorskip("mcp", reason="pip install 'warpgrade[mcp]'")

    async def session():
        environment = {"WARPGRADE_READY": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
        parameters = mcp.StdioServerParameters(command=program[0], args=program[1:], env=environment)
        async with mcp.Client(mcp.stdio_client(parameters)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["grade", "explain", "problems", "compare"]
            assert "relu " in said(await client.call_tool("problems", {"containing": "relu"}))
            shown = said(await client.call_tool("problems", {"name": "relu"}))
            assert "class Model(nn.Module)" in shown

            first = await client.call_tool("grade", {"problem": "relu", "source": MISSPELT})
            assert first.structured_content["status"] == "build_error"
            line = 1 + MISSPELT[: MISSPELT.index("blockDimension")].count("\n")
            assert f"line {line} of the submission" in said(first)

            second = await client.call_tool("grade", {"problem": "relu", "source": WRONG})
            assert second.structured_content["status"] == "wrong_result"
            assert not second.structured_content["correct"]
            assert "Next step:" in said(second)
            code = second.structured_content["code"]
            assert said(await client.call_tool("explain", {"code": code})).startswith(f"{code}: ")

            third = await client.call_tool("grade", {"problem": "relu", "source": RIGHT, "characters": 2400})
            assert third.structured_content.items() >= {"status": "correct", "correct": True, "code": None}.items()
            assert [case["name"] for case in third.structured_content["cases"]] == ["small", "awkward"]

            both = await client.call_tool("compare", {"problem": "relu", "first": WRONG, "second": RIGHT})
            assert both.structured_content["first"]["status"] == "wrong_result"
            assert both.structured_content["second"]["correct"]
            assert said(both).startswith("Only two correct submissions have comparable speeds.")

            await refusals(client)

    asyncio.run(asyncio.wait_for(session(), 600))


async def refusals(client):
    """Errors say what to do, and the session goes on."""
    for tool, arguments, remedy in (
        ("grade", {"problem": "relux", "source": RIGHT}, "Next: did you mean relu"),
        ("grade", {"problem": "nothing", "source": RIGHT}, "Next: the tool `problems` without a name lists all"),
        (
            "grade",
            {"problem": "relu"},
            "Next: the arguments are characters (optional), problem, source, budget_s (optional), case (optional)",
        ),
        ("grade", {"problem": "relu", "path": "relu.py"}, "this server takes no path"),
        ("grade", {"problem": "relu", "source": RIGHT, "characters": 1}, ">= 2400"),
        ("profile", {"problem": "relu", "source": RIGHT}, "Next: the tools are grade, explain, problems, compare"),
        ("problems", {"name": "../relu"}, "Next: did you mean relu"),
        ("explain", {"code": "C4050"}, "Next: did you mean C405"),
        ("submit", {}, "Next: the tools are grade, explain"),
    ):
        refused = await client.call_tool(tool, arguments)
        assert refused.is_error, (tool, arguments)
        assert remedy in said(refused), said(refused)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_no_process_is_left_when_the_session_ends_during_a_grade(program, killed):
    pytest.importorskip("mcp", reason="pip install 'warpgrade[mcp]'")
    environment = {**os.environ, "WARPGRADE_READY": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    server = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    grade = {"name": "grade", "arguments": {"problem": "relu", "source": "while True:\n    pass\n"}}
    try:
        send(server, {"id": 1, "method": "initialize", "params": HELLO})
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "warpgrade"
        send(server, {"method": "notifications/initialized"})
        send(server, {"id": 2, "method": "tools/call", "params": grade})
        children = wait_for_children(psutil.Process(server.pid))
        if killed:
            server.kill()
        server.stdin.close()
        server.wait(60)
    finally:
        server.kill()
        server.stdout.close()
    assert server.returncode == (-signal.SIGKILL if killed else 0)
    _, alive = psutil.wait_procs(children, timeout=300)
    assert alive == []


ODD = {
    "a lone surrogate": r'{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"\ud800"}}',
    "deep nesting": '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"a":' + "[" * 5000 + "]" * 5000 + "}}",
    "a cut line": '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"gra',
    "no method": '{"jsonrpc":"2.0","id":ID}',
    "params in a list": '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":[1]}',
    "odd arguments": '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"grade","arguments":[]}}',
    "an unknown method": '{"jsonrpc":"2.0","id":ID,"method":"tools/cull"}',
}


@pytest.mark.slow
def test_every_request_has_an_answer(program):
    pytest.importorskip("mcp", reason="pip install 'warpgrade[mcp]'")
    environment = {**os.environ, "WARPGRADE_READY": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    server = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        send(server, {"id": 1, "method": "initialize", "params": HELLO})
        server.stdout.readline()
        send(server, {"method": "notifications/initialized"})
        for number, (name, line) in enumerate(ODD.items(), start=10):
            server.stdin.write(f"\n{line.replace('ID', str(number))}\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
            known = None if name in ("deep nesting", "a cut line") else number
            assert (answer["id"], "error" in answer) == (known, True), name
        chance = random.Random(7)
        request = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "explain"}})
        for _ in range(200):
            damaged = request[: chance.randrange(1, len(request))].replace(chance.choice(request), "")
            server.stdin.write(f"{damaged}\n")
            server.stdin.write(chance.choice(("[]\n", "5\n", "\x00\n", "{}\n")))
            send(server, {"id": "alive", "method": "ping"})
            while (answer := json.loads(server.stdout.readline()))["id"] != "alive":
                assert answer["id"] in (5, None)
                assert answer["error"]["code"] in (-32700, -32600)
        server.stdin.close()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.stdout.close()


def send(server, message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def wait_for_children(server):
    """Return all processes below the server, as soon as a worker has processes of its own."""
    until = time.monotonic() + 300
    while len(found := server.children(recursive=True)) <= 2:
        assert time.monotonic() < until, "no grade began"
        time.sleep(0.1)
    return found


def test_without_the_package_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "from evaluator.commands.main import run\n"
        "sys.exit(run(['mcp', '--device', 'emulated']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install 'warpgrade[mcp]'" in done.stderr
