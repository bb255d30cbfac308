import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from replan import Agent
from replan.errors import ConfigError, McpError
from replan.journal.sqlite import SqliteJournal
from replan.mcp import McpServers, StdioServer
from replan.messages import ToolResult
from replan.testing import ScriptedModel, call


def named(servers, name):
    return next(tool for tool in servers.tools if tool.info.original == name)


def text(output):
    return output.content[0].text


async def poll(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_tools_are_listed_and_called(wire, context):
    async with McpServers({"w": wire()}) as servers:
        assert [tool.info.name for tool in servers.tools][:3] == ["w__echo", "w__get_state", "w__die"]
        output = await named(servers, "echo").call({"text": "hé"}, context)
        assert (text(output), output.is_error) == ("hé", False)
        assert servers.statuses[0].state == "ready"
        assert servers.instructions == {"w": "Be kind."}
    assert servers.statuses[0].state == "closed"


async def test_tools_that_run_as_tasks_only_are_left_out(wire):
    async with McpServers({"w": wire()}) as servers:
        assert "task_only" not in [tool.info.original for tool in servers.tools]


async def test_the_call_carries_the_idempotency_key_and_the_process_a_small_environment(wire, context, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "x")
    async with McpServers({"w": wire(env={"MINE": "1"})}) as servers:
        state = (await named(servers, "get_state").call({}, context)).structured
        assert state["meta"]["replan/idempotency-key"] == "key-1"
        assert state["env"]["MINE"] == "1"
        assert state["env"]["PATH"] == os.environ["PATH"]
        assert "SECRET_OF_THE_PARENT" not in state["env"]


async def test_a_server_that_exits_at_start_fails_at_once_with_its_words(wire):
    began = time.monotonic()
    async with McpServers({"w": wire("exit=7")}) as servers:
        (status,) = servers.statuses
    assert status.state == "failed"
    assert "exited with code 7" in status.error
    assert "API key missing" in status.error
    assert time.monotonic() - began < 5


async def test_a_command_that_does_not_exist_is_named():
    servers = {
        "a": StdioServer("no-such-command-here"),
        "b": StdioServer("./no/such/file"),
        "c": StdioServer("ls", cwd="/no"),
    }
    async with McpServers(servers) as mounted:
        a, b, c = mounted.statuses
    assert "'no-such-command-here' is not found in PATH" in a.error
    assert "'./no/such/file' does not exist" in b.error
    assert "'/no'" in c.error


async def test_a_silent_server_fails_in_its_own_time_and_the_others_work(wire, context):
    async with McpServers({"silent": wire("silent", connect_timeout=0.5), "w": wire()}) as servers:
        silent, good = servers.statuses
        assert "no answer within 0.5 s" in silent.error
        assert good.state == "ready"
        assert text(await named(servers, "echo").call({"text": "x"}, context)) == "x"


async def test_a_server_that_dies_inside_a_call_gives_an_error_result_and_is_started_again(wire, context, tmp_path):
    marker = tmp_path / "marker"
    async with McpServers({"w": wire()}) as servers:
        first = (await named(servers, "get_state").call({}, context)).structured["pid"]
        output = await named(servers, "die").call({"code": 5, "marker": str(marker)}, context)
        assert output.is_error
        assert "MCP server 'w': the server exited with code 5" in text(output)
        assert "disk on fire" in text(output)
        assert marker.read_text() == "died\n"
        second = (await named(servers, "get_state").call({}, context)).structured["pid"]
        assert second != first
        assert servers.statuses[0].state == "ready"


async def test_a_call_that_was_cut_is_made_again_only_where_the_host_says_it_may(wire, context, tmp_path):
    asked, unasked = tmp_path / "asked", tmp_path / "unasked"
    config = {"declared": wire(read_only=("get_*",)), "plain": wire()}
    async with McpServers(config) as servers:
        declared, plain = (tool for tool in servers.tools if tool.info.original == "get_or_die")
        assert text(await declared.call({"marker": str(asked)}, context)) == "survived"
        output = await plain.call({"marker": str(unasked)}, context)
        assert output.is_error
        assert "whether the call took effect is not known" in text(output)
    assert asked.read_text() == unasked.read_text() == "died\n"


async def test_calls_in_flight_all_end_when_the_server_dies(wire, context):
    async with McpServers({"w": wire()}) as servers:
        hanging = [asyncio.create_task(named(servers, "hang").call({}, context)) for _ in range(3)]
        pid = (await named(servers, "get_state").call({}, context)).structured["pid"]
        os.kill(pid, signal.SIGKILL)
        outputs = await asyncio.wait_for(asyncio.gather(*hanging), 5)
        assert all(output.is_error and "SIGKILL" in text(output) for output in outputs)


async def test_a_server_that_keeps_dying_costs_each_call_one_start(wire, context, tmp_path):
    marker = tmp_path / "marker"
    async with McpServers({"w": wire(idempotent=("die",))}) as servers:
        output = await named(servers, "die").call({"marker": str(marker)}, context)
        assert output.is_error
        assert marker.read_text() == "died\ndied\n"


async def test_garbage_on_stdout_is_logged_and_left_out(wire, context, caplog):
    async with McpServers({"w": wire("garbage")}) as servers:
        assert text(await named(servers, "echo").call({"text": "x"}, context)) == "x"
    assert "Welcome to the server!" in caplog.text
    assert "debug: working" in caplog.text
    assert not any(record.exc_info for record in caplog.records if record.levelname != "DEBUG")


async def test_stderr_goes_to_the_log_and_not_to_the_terminal(wire, context, caplog, capfd):
    caplog.set_level("DEBUG", "replan.mcp")
    async with McpServers({"w": wire()}) as servers:
        await named(servers, "die").call({}, context)
    assert "MCP server 'w' on stderr: disk on fire" in caplog.text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("flags", [("stubborn",), ("grandchild",), ("stubborn", "grandchild")])
async def test_closing_ends_servers_that_ignore_it_and_what_they_started(wire, flags):
    servers = McpServers({name: wire(*flags) for name in "abc"})
    await servers.connect()
    assert len(wire.processes()) == (6 if "grandchild" in flags else 3)
    began = time.monotonic()
    await servers.close()
    assert time.monotonic() - began < 5
    assert wire.processes() == []


async def test_a_good_server_closes_quickly(wire):
    servers = McpServers({"w": wire()})
    await servers.connect()
    began = time.monotonic()
    await servers.close()
    assert time.monotonic() - began < 1


async def test_closing_works_in_any_order_from_any_task_and_twice(wire, context):
    a, b = McpServers({"a": wire()}), McpServers({"b": wire()})
    await asyncio.create_task(a.connect())
    await b.connect()
    call = asyncio.create_task(named(b, "hang").call({}, context))
    await asyncio.create_task(a.close())
    await a.close()
    assert text(await named(b, "echo").call({"text": "x"}, context)) == "x"
    await asyncio.gather(b.close(), asyncio.create_task(b.close()))
    assert (await call).is_error
    assert asyncio.current_task().cancelling() == 0
    after = await named(b, "echo").call({"text": "x"}, context)
    assert after.is_error
    assert "the connection is closed" in text(after)


async def test_closing_while_connecting_ends_the_process(wire):
    servers = McpServers({"w": wire("silent")})
    connecting = asyncio.create_task(servers.connect())
    await poll(wire.processes)
    await servers.close()
    await asyncio.wait_for(connecting, 2)
    assert wire.processes() == []


async def test_cancelling_the_connecting_task_leaves_no_process(wire):
    async def connect():
        async with McpServers({"w": wire("silent")}):
            raise AssertionError("connected")

    task = asyncio.create_task(connect())
    await poll(wire.processes)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.processes() == []


async def test_cancelling_a_call_tells_the_server_and_keeps_the_session(wire, context):
    async with McpServers({"w": wire()}) as servers:
        pid = (await named(servers, "get_state").call({}, context)).structured["pid"]
        call = asyncio.create_task(named(servers, "hang").call({}, context))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        state = (await named(servers, "get_state").call({}, context)).structured
        assert len(state["cancelled"]) == 1
        assert state["pid"] == pid


async def test_a_call_without_a_sign_of_life_is_given_up_and_the_server_told(wire, context):
    async with McpServers({"w": wire(call_timeout=0.3)}) as servers:
        output = await named(servers, "hang").call({}, context)
        assert output.is_error
        assert "no sign of life for 0.3 s" in text(output)
        state = (await named(servers, "get_state").call({}, context)).structured
        assert len(state["cancelled"]) == 1


async def test_progress_extends_the_idle_limit_up_to_the_absolute_one(wire, context):
    async with McpServers({"w": wire(call_timeout=0.5, max_call_time=1.2)}) as servers:
        steps = named(servers, "steps")
        assert text(await steps.call({"count": 4, "pause": 0.2}, context)) == "done"
        assert context.cancelled.steps == [(1, None, None), (2, None, None), (3, None, None), (4, None, None)]
        output = await steps.call({"count": 40, "pause": 0.1}, context)
        assert output.is_error
        assert "did not end within 1.2 s" in text(output)
        assert not (await named(servers, "get_state").call({}, context)).is_error


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("is_error", "no such customer"),
        ("empty", "(the tool failed and gave no reason)"),
        ("rpc", 'bad arguments {"field":"shape"}'),
        ("rpc_empty", "(the server answered with an error and gave no reason)"),
        ("malformed", "the server's answer does not follow the protocol"),
    ],
)
async def test_errors_of_the_tool_are_error_results(wire, context, shape, expected):
    async with McpServers({"w": wire()}) as servers:
        output = await named(servers, "refuse").call({"shape": shape}, context)
        assert output.is_error
        assert expected in text(output)
        assert not (await named(servers, "get_state").call({}, context)).is_error


@pytest.mark.parametrize(
    ("flag", "count", "warning"),
    [
        ("pages", 120, ""),
        ("same-cursor", 8, "repeats the cursor 'again'"),
        ("endless", 100, "more than 100 pages"),
        ("empty-cursor", 2, ""),
    ],
)
async def test_tool_lists_are_read_to_their_end(wire, caplog, flag, count, warning):
    async with McpServers({"w": wire(flag)}) as servers:
        assert len(servers.tools) == count
    assert warning in caplog.text
    assert bool(caplog.records) == bool(warning)


async def test_tools_that_are_described_badly_do_not_hide_the_others(wire, context, caplog):
    async with McpServers({"w": wire("odd-tools")}) as servers:
        assert [tool.info.original for tool in servers.tools] == ["bare", "unstated", "unioned", "echo"]
        assert servers.tools[0].info.parameters == {"type": "object"}
        assert text(await named(servers, "echo").call({"text": "x"}, context)) == "x"
    assert caplog.text.count("it is left out") == 4


async def test_a_changed_list_takes_tools_away_at_once_and_adds_them_when_asked(wire, context):
    async with McpServers({"w": wire()}) as servers:
        echo = named(servers, "echo")
        await named(servers, "change").call({}, context)
        await poll(lambda: servers.statuses[0].tools and not servers.tools[0]._connection.offers("echo"))
        output = await echo.call({"text": "x"}, context)
        assert output.is_error
        assert "no longer offers the tool 'echo'" in text(output)
        assert "fresh" not in [tool.info.original for tool in servers.tools]
        servers.list_tools()
        originals = [tool.info.original for tool in servers.tools]
        assert "fresh" in originals
        assert "echo" not in originals


async def test_nothing_usable_is_an_error_where_that_is_wanted(wire):
    with pytest.raises(McpError, match=r"(?s)no MCP server gave a tool: 'w': .*API key missing"):
        async with McpServers({"w": wire("exit=1")}, fail_on_no_tools=True):
            raise AssertionError("connected")


async def test_servers_that_failed_can_be_tried_again(wire, tmp_path):
    link = tmp_path / "server"
    async with McpServers({"w": StdioServer(str(link), wire().args, wire().env), "ok": wire()}) as servers:
        assert [status.state for status in servers.statuses] == ["failed", "ready"]
        link.symlink_to(sys.executable)
        await servers.reconnect()
        assert [status.state for status in servers.statuses] == ["ready", "ready"]
        assert servers.tools[0].info.name == "w__echo"


PARENT = """
import asyncio, sys
from replan.mcp import McpServers, StdioServer

async def main():
    servers = McpServers({"w": StdioServer(sys.executable, tuple(sys.argv[2:]), {"REPLAN_TEST_MARK": sys.argv[1]})})
    await servers.connect()
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a signal on the parent's death")
@pytest.mark.parametrize("flags", [(), ("deaf",), ("stubborn",)])
async def test_servers_end_when_the_process_that_uses_them_is_killed(wire, flags):
    server = ("-c", "import runpy, sys, time; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0]); time.sleep(60)")
    args = [*(server if "deaf" in flags else ()), *wire(*flags).args[2:]]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, wire.mark, *args], stdout=subprocess.PIPE, text=True)
    try:
        assert await asyncio.to_thread(parent.stdout.readline) == "ready\n"
        assert len(wire.processes()) == 1
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    await poll(lambda: wire.processes() == [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs a signal on the parent's death")
async def test_launchers_are_asked_to_end_so_that_they_can_hand_it_on(wire, tmp_path):
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\nexec 3<&0\n"$@" <&3 &\ntrap "kill -9 $!; exit" TERM\nwait\n')
    launcher.chmod(0o755)
    code = PARENT.replace("sys.executable, tuple(", f"{str(launcher)!r}, (sys.executable,) + tuple(")
    args = wire("stubborn").args[2:]
    parent = subprocess.Popen([sys.executable, "-c", code, wire.mark, *args], stdout=subprocess.PIPE, text=True)
    try:
        assert await asyncio.to_thread(parent.stdout.readline) == "ready\n"
        assert len(wire.processes()) == 2
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    await poll(lambda: wire.processes() == [])


async def test_a_real_server_answers(context):
    async with McpServers({"time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}}) as servers:
        output = await named(servers, "get_current_time").call({"timezone": "Etc/UTC"}, context)
        assert output.structured["timezone"] == "Etc/UTC"
        assert len(output.content) == 1
        wrong = await named(servers, "get_current_time").call({"timezone": "Mars/X"}, context)
        assert wrong.is_error
        assert "Mars/X" in text(wrong)


async def test_servers_that_nobody_refers_to_any_more_end(wire):
    servers = McpServers({"w": wire()})
    await servers.connect()
    tools = servers.tools
    del servers
    gc.collect()
    assert tools[0].info.name == "w__echo"
    assert len(wire.processes()) == 1
    del tools
    gc.collect()
    await poll(lambda: wire.processes() == [])


@pytest.mark.parametrize("stored", [False, True])
async def test_an_agent_that_nobody_refers_to_any_more_leaves_no_server(wire, tmp_path, stored):
    journal = SqliteJournal(tmp_path / "runs.db") if stored else None

    async def use():
        model = ScriptedModel(call("w__echo", text="hé"), "end")
        return await Agent(model, mcp_servers={"w": wire()}, journal=journal).run("go")

    def gone():
        gc.collect()  # the journal's thread may hold on to its last work for a moment
        return wire.processes() == []

    assert (await use()).text == "end"
    await poll(gone)
    if journal:
        await journal.close()


def test_servers_can_be_closed_and_used_in_a_later_event_loop(wire, context):
    servers = McpServers({"w": wire()})
    asyncio.run(servers.connect())
    assert wire.processes() == []
    tool = named(servers, "echo")
    for word in ("once", "again"):
        assert text(asyncio.run(tool.call({"text": word}, context))) == word
    asyncio.run(servers.close())
    assert servers.statuses[0].state == "closed"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_servers_of_an_event_loop_that_was_dropped_are_killed(wire):
    loop = asyncio.new_event_loop()
    servers = McpServers({"w": wire()})
    loop.run_until_complete(servers.connect())
    loop.close()
    assert len(wire.processes()) == 1
    asyncio.run(servers.close())
    deadline = time.monotonic() + 5
    while wire.processes():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_servers_can_be_closed_from_another_thread(wire):
    servers = McpServers({"w": wire()})
    await servers.connect()
    await asyncio.to_thread(asyncio.run, servers.close())
    assert wire.processes() == []


async def test_an_agent_closed_while_it_connects_leaves_no_server(wire):
    agent = Agent(ScriptedModel("x"), mcp_servers={"w": wire()})
    listing = asyncio.create_task(agent.list_tools())
    await poll(wire.processes)
    await agent.close()
    assert wire.processes() == []
    with pytest.raises(ConfigError, match="closed"):
        await listing
    await agent.close()


async def test_closing_an_agent_again_after_a_cancelled_close_waits_for_its_servers(wire):
    agent = Agent(ScriptedModel("x"), mcp_servers={"w": wire("stubborn")})
    await agent.list_tools()
    closing = asyncio.create_task(agent.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert len(wire.processes()) == 1
    await agent.close()
    assert wire.processes() == []


def test_an_agent_can_be_used_and_closed_in_event_loops_of_their_own(wire, tmp_path):
    model = ScriptedModel(call("w__echo", text="a"), "one", call("w__echo", text="b"), "two")
    agent = Agent(model, mcp_servers={"w": wire()}, journal=tmp_path / "runs.db")
    assert asyncio.run(agent.run("go")).text == "one"
    second = asyncio.run(agent.run("go"))
    assert second.text == "two"
    assert [message.text for message in second.messages if isinstance(message, ToolResult)] == ["b"]
    asyncio.run(agent.close())
    assert [thread.name for thread in threading.enumerate() if "journal" in thread.name] == []
    assert wire.processes() == []
