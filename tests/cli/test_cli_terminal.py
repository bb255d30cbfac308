import json
import re

import pytest
from tools_for_cli import add

from replan.messages import Thinking
from replan.testing import HttpReply, ScriptedServer, sse_reply
from replan.testing.mcp import stdio_server


def chunk(text):
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def test_a_plan_is_shown_live_and_left_there_with_its_states(in_terminal, replan, planned):
    server_ = stdio_server(add)
    mcp = json.dumps({"calc": {"command": server_.command, "args": list(server_.args), "env": dict(server_.env or {})}})
    script = [
        planned(("calc__add", {"a": 2, "b": 3}), "Think [red]hard[/red].", thought="First \x1b[31madd."),
        [Thinking("hm"), "Thought."],
        "The \x1b[2Janswer.",
    ]
    with ScriptedServer(*script) as server:
        terminal = in_terminal("run", "Add 2 and 3", "--mcp", mcp, *replan.model(server))
        assert terminal.wait() == 0
    lines = terminal.screen()
    assert lines[0] == "First add."
    assert lines.pop(1).startswith("price: 2-")
    assert re.fullmatch(r"✓ Call calc__add  \d\.\d s", lines[1])
    assert re.fullmatch(r"    calc__add\(a=2, b=3\)  ✓ \d\.\d s  5", lines[2])
    assert re.fullmatch(r"✓ Think \[red\]hard\[/red\]\.  \d\.\d s", lines[3])
    assert lines[4] == "The answer."
    assert re.fullmatch(r"300 tokens in, 30 out · \d\.\d s · [\w-]+", lines[5])
    assert "\x1b[31m" not in terminal.raw.split("First", 1)[1].split("add.")[0]


def test_the_answer_is_streamed(in_terminal, replan):
    held = sse_reply(chunk("Half an answer"), done=False, then="hang")
    with ScriptedServer(held, "Whole.") as server:
        terminal = in_terminal("run", "--plain", "x", *replan.model(server))
        terminal.until("Half an answer")
        server.release()
        terminal.until("Whole.")
        assert terminal.wait() == 0
    assert "Half an answer" not in "\n".join(terminal.screen())


def test_steps_are_shown_as_soon_as_they_are_described(in_terminal, replan):
    begin = '{"thought": "Two steps.", "steps": [{"id": "a", "description": "Look it up"}, {"id": "b", "desc'
    with ScriptedServer(sse_reply(chunk(begin), done=False, then="hang")) as server:
        terminal = in_terminal("run", "x", *replan.model(server))
        terminal.until("Look it up")
        terminal.type("\x03")
        terminal.until("replan: interrupted")
        assert terminal.wait() == 130
    assert terminal.raw.endswith("\n")
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_colours_are_left_out_where_they_are_not_wanted(in_terminal, replan, planned):
    with ScriptedServer(planned("Think."), "Thought.", "The answer.") as server:
        terminal = in_terminal("run", "x", *replan.model(server), NO_COLOR="1")
        assert terminal.wait() == 0
    assert not re.search(r"\x1b\[(?:\d+;)*3[0-9]", terminal.raw.replace("\x1b[3m", ""))


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"PYTHONPATH": "NO_RICH"}])
def test_a_terminal_that_cannot_be_drawn_on_gets_lines(in_terminal, replan, planned, tmp_path, more):
    if "PYTHONPATH" in more:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\n")
        more = {"PYTHONPATH": str(tmp_path)}
    with ScriptedServer(planned("Think."), "Thought.", "The answer.") as server:
        terminal = in_terminal("run", "x", *replan.model(server), **more)
        assert terminal.wait() == 0
    assert "\x1b" not in terminal.raw
    lines = terminal.screen()
    assert [lines[0], lines[2]] == ["plan: 1. Think.", "step 1: Think."]


def test_long_output_does_not_scroll_the_terminal_away(in_terminal, replan):
    held = sse_reply(chunk("\n".join(f"line {number}" for number in range(200))), done=False, then="hang")
    with ScriptedServer(held, "Whole.") as server:
        terminal = in_terminal("run", "--plain", "x", *replan.model(server))
        terminal.until("line 199")
        server.release()
        terminal.until("Whole.")
        assert terminal.wait() == 0
    assert "line 5\r" not in terminal.raw


def test_the_terminal_may_go_away(in_terminal, replan, until):
    with ScriptedServer(HttpReply(then="hang")) as server:
        terminal = in_terminal("run", "--plain", "x", *replan.model(server))
        until(lambda: server.requests)
        terminal.hang_up()
        assert terminal.wait() == 129
