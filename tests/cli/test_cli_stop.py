import json
import os
import re
import signal
import subprocess
import time

import pytest
from tools_for_cli import hang, send

from replan.testing import ScriptedServer, call, sse_reply
from replan.testing.mcp import stdio_server


def mcp(tmp_path, *functions, **more):
    server = stdio_server(*functions)
    env = {**(server.env or {}), "CLI_TEST_FOLDER": str(tmp_path), **more}
    return json.dumps({"t": {"command": server.command, "args": list(server.args), "env": env}})


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


STREAM = sse_reply({"choices": [{"index": 0, "delta": {"content": "I was saying"}}]}, done=False, then="hang")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_a_model_stream_stops_the_run_which_can_be_resumed(replan, until, number, code):
    with ScriptedServer(STREAM, "Fine.") as server:
        process = replan.process("run", "--plain", "x", "--run-id", "r1", *replan.model(server))
        until(lambda: server.requests)
        until(lambda: server.open_connections)
        started = time.monotonic()
        process.send_signal(number)
        done = replan.finish(process)
        assert time.monotonic() - started < 5
        until(lambda: not server.open_connections)
        assert (done.code, done.out, done.err) == (code, "", "replan: interrupted; go on with: replan resume r1\n")
        assert json.loads(replan("show", "r1", "--json").out)["status"] == "cancelled"
        resumed = replan("resume", "r1")
    assert (resumed.code, resumed.out) == (0, "Fine.\n")


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_signal_in_a_tool_ends_it_with_its_server(replan, until, tmp_path, words):
    with ScriptedServer(call("t__hang", text="x"), "Fine.") as server:
        process = replan.process("run", "--plain", "x", *words, "--mcp", mcp(tmp_path, hang), *replan.model(server))
        until((tmp_path / "hangs").exists)
        until((tmp_path / "hangs").read_text)
        pid = int((tmp_path / "hangs").read_text())
        process.send_signal(signal.SIGINT)
        done = replan.finish(process)
    assert done.code == 130
    assert "replan: interrupted; go on with: replan resume " in done.err
    assert not lives(pid)


def test_a_signal_while_a_server_is_being_connected_ends_it(replan, until, tmp_path):
    silent = json.dumps({"s": {"command": "sh", "args": ["-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"]}})
    process = replan.process("run", "--plain", "x", "--mcp", silent, *replan.nowhere)
    until((tmp_path / "pid").exists)
    until((tmp_path / "pid").read_text)
    process.send_signal(signal.SIGINT)
    done = replan.finish(process)
    assert (done.code, done.out, done.err) == (130, "", "replan: interrupted\n")
    assert not lives(int((tmp_path / "pid").read_text()))


def test_a_signal_while_the_goal_is_read(replan):
    process = replan.process("run", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"x" * 500_000)  # more than a pipe holds: when it is written, it is being read
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert process.stderr is not None
    assert process.stderr.read() == b"replan: interrupted\n"


def test_a_signal_while_tools_are_listed(replan, until, tmp_path):
    silent = json.dumps({"s": {"command": "sh", "args": ["-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"]}})
    process = replan.process("tools", "--mcp", silent)
    until((tmp_path / "pid").exists)
    until((tmp_path / "pid").read_text)
    process.send_signal(signal.SIGINT)
    assert replan.finish(process).code == 130
    assert not lives(int((tmp_path / "pid").read_text()))


def test_a_second_signal_ends_everything_at_once(replan, until, tmp_path):
    child = f"echo $$ > {tmp_path}/pid; trap '' TERM INT HUP; sleep 60 & echo $! > {tmp_path}/grandchild; wait"
    servers = {"s": {"command": "sh", "args": ["-c", child]}}
    process = replan.process("run", "--plain", "x", "--mcp", json.dumps(servers), *replan.nowhere)
    until((tmp_path / "grandchild").exists)
    until((tmp_path / "grandchild").read_text)
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "grandchild")]
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    assert time.monotonic() - started < 1
    until(lambda: not any(map(lives, pids)), 2)


def test_a_stubborn_tool_does_not_outlive_the_command(replan, until, tmp_path):
    with ScriptedServer(call("t__hang", text="x"), "Fine.") as server:
        process = replan.process(
            "run", "--plain", "x", "--mcp", mcp(tmp_path, hang, CLI_TEST_STUBBORN="1"), *replan.model(server)
        )
        until(lambda: (tmp_path / "hangs").exists() and (tmp_path / "hangs").read_text())
        process.send_signal(signal.SIGINT)
        done = replan.finish(process)
    assert done.code == 130
    assert not lives(int((tmp_path / "hangs").read_text()))


def test_an_ignored_signal_stays_ignored(replan, until):
    with ScriptedServer(STREAM) as server:
        process = replan.process(
            "run",
            "--plain",
            "x",
            *replan.model(server),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        until(lambda: server.requests)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        server.release()
        assert replan.finish(process).code != 130


def test_a_run_whose_process_is_killed_is_interrupted_and_goes_on(replan, until, tmp_path, planned):
    script = [planned(("t__send", {"text": "once"}), "Think."), STREAM, "Thought.", "The answer."]
    with ScriptedServer(*script) as server:
        config = mcp(tmp_path, send)
        process = replan.process("run", "x", "--run-id", "r1", "--mcp", config, *replan.model(server))
        until(lambda: len(server.requests) == 2)
        process.kill()
        process.wait()
        assert re.match(r"r1  interrupted  .* planning agent  x\n", replan("runs").out)
        done = replan("resume", "r1", "--mcp", config)
    assert (done.code, done.out) == (0, "The answer.\n")
    assert (tmp_path / "sent").read_text() == "once\n"
    lines = done.err.splitlines()
    assert [*lines[:2], lines[3]] == ["plan: 1. Call t__send", "plan: 2. Think.", "step 1: Call t__send"]
    assert sum(line.startswith("plan: 1.") for line in lines) == 1
    assert "step 1: done" in done.err
    assert "step 2: done" in done.err
