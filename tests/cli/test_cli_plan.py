import json
import xml.etree.ElementTree as ET

import pytest
from tools_for_cli import add, send

from replan.testing import ScriptedServer
from replan.testing.mcp import stdio_server


@pytest.fixture
def servers(tmp_path, monkeypatch):
    """The options that give the tools `t__add` (read-only) and `t__send`."""
    server = stdio_server(add, send)
    environment = {**dict(server.env or {}), "CLI_TEST_FOLDER": str(tmp_path)}
    config = {"command": server.command, "args": list(server.args), "env": environment, "read_only": ["add"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"t": config}}))
    return ["--mcp", "mcp.json"]


def sent(tmp_path):
    return (tmp_path / "sent").read_text().splitlines() if (tmp_path / "sent").exists() else []


ADD_AND_SEND = json.dumps(
    {
        "thought": "Add, then send.",
        "steps": [
            {"id": "a", "description": "Add", "call": {"tool": "t__add", "arguments": {"a": 2, "b": 3}}},
            {
                "id": "b",
                "description": "Send it",
                "call": {"tool": "t__send", "arguments": {"text": "The sum is ${a.result}"}},
            },
        ],
    }
)
GOAL = "Send 'The sum is' with 2 plus 3"
WRITTEN = f"""\
goal: {GOAL}
thought: Add, then send.
steps:
  - id: a
    description: Add
    call:
      tool: t__add
      arguments:
        a: 2
        b: 3
  - id: b
    description: Send it
    call:
      tool: t__send
      arguments:
        text: The sum is ${{a.result}}
"""


def test_a_plan_is_printed_with_its_price_and_not_run(replan, servers, tmp_path):
    with ScriptedServer(ADD_AND_SEND) as server:
        done = replan("plan", GOAL, *servers, *replan.model(server))
    assert (done.code, done.out) == (0, WRITTEN)
    assert "price: " in done.err
    assert "2 tool calls" in done.err
    assert sent(tmp_path) == []


def test_a_plan_goes_to_a_file_is_edited_and_run(replan, servers, tmp_path):
    with ScriptedServer(ADD_AND_SEND) as server:
        done = replan("plan", GOAL, "--out", "p.yaml", *servers, *replan.model(server))
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / "p.yaml").read_text() == WRITTEN
    (tmp_path / "p.yaml").write_text(WRITTEN.replace("b: 3", "b: 40").replace("    description: Send it", "    x: 1"))
    with ScriptedServer("It is sent.") as server:
        done = replan("run", "--plan", "p.yaml", "--run-id", "r1", *servers, *replan.model(server))
    assert (done.code, done.out) == (0, "It is sent.\n")
    assert "plans have no such fields, they are left out: steps[1].x" in done.err
    assert sent(tmp_path) == ["The sum is 42"]
    assert f"goal     {GOAL}" in replan("show", "r1").out


def test_a_plan_is_printed_as_json_and_read_from_standard_input(replan, servers, tmp_path):
    with ScriptedServer(ADD_AND_SEND) as server:
        [data] = replan("plan", GOAL, "--json", "--out", "p.json", *servers, *replan.model(server)).lines
    assert data["goal"] == GOAL
    assert [step["id"] for step in data["plan"]["steps"]] == ["a", "b"]
    assert data["price"]["tool_calls"] == [2, 2]
    assert isinstance(data["findings"], list)
    assert json.loads((tmp_path / "p.json").read_text()) == {"goal": GOAL, **data["plan"]}
    process = replan.process("plan", "--plan", "-", "--no-journal", *servers, *replan.nowhere, stdin=-1)
    out, err = process.communicate((tmp_path / "p.json").read_bytes(), timeout=20)
    assert (process.returncode, out.decode()) == (0, WRITTEN)
    assert "price: " in err.decode()


def test_a_dry_run_prints_what_it_would_have_called(replan, servers, tmp_path):
    (tmp_path / "p.yaml").write_text(WRITTEN)
    with ScriptedServer("Nothing was sent.") as server:
        done = replan("run", "--plan", "p.yaml", "--dry-run", *servers, *replan.model(server))
    assert done.code == 0
    assert done.out == 'Nothing was sent.\ndry run: not called\n  t__send(text="The sum is 5")  (step b)\n'
    assert sent(tmp_path) == []
    with ScriptedServer("Nothing was sent.") as server:
        done = replan("run", "--plan", "p.yaml", "--dry-run", "--json", *servers, *replan.model(server))
    effects = [{"step": "b", "tool": "t__send", "arguments": {"text": "The sum is 5"}}]
    assert done.lines[-1]["type"] == "dry-run"
    assert done.lines[-1]["effects"] == effects
    (tmp_path / "p.yaml").write_text(WRITTEN.partition("  - id: b")[0])
    with ScriptedServer("Five.") as server:
        done = replan("run", "--plan", "p.yaml", "--dry-run", *servers, *replan.model(server))
    assert done.out == "Five.\ndry run: nothing would have been changed\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "x", "--plan", "none.yaml"], "the plan 'none.yaml' cannot be read: "),
        (["run", "x", "--plan", "."], "the plan '.' cannot be read: "),
        (["run", "x", "--plan", "bad.yaml"], "bad.yaml: the plan cannot be read: line 3, column 1: the field 'steps'"),
        (["plan", "x", "--plan", "latin.yaml"], "the plan 'latin.yaml' cannot be read: "),
        (["run", "-", "--plan", "-"], "standard input cannot be both goal and plan"),
        (["run", "x", "--plain", "--plan", "bad.yaml"], "--plan is for plans, and with --plain there is none"),
        (["run", "x", "--plain", "--dry-run"], "--dry-run is for plans"),
    ],
)
def test_what_cannot_be_done_is_told(replan, tmp_path, words, said):
    (tmp_path / "bad.yaml").write_text("goal: x\nsteps: []\nsteps: []\n")
    (tmp_path / "latin.yaml").write_bytes(b"goal: caf\xe9\nsteps: []\n")
    done = replan(*words, *replan.nowhere)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_plan_that_cannot_be_run_is_refused(replan, servers, tmp_path):
    (tmp_path / "p.yaml").write_text(WRITTEN.replace("t__add", "t__multiply"))
    done = replan("run", "--plan", "p.yaml", *servers, *replan.nowhere)
    assert done.code == 2
    assert "t__multiply" in done.err
    assert sent(tmp_path) == []


def test_a_file_that_cannot_be_written_is_told(replan, tmp_path):
    (tmp_path / "p.yaml").write_text("goal: x\nsteps:\n  - id: a\n    description: Think\n")
    done = replan("plan", "--plan", "p.yaml", "--out", "no/p.yaml", *replan.nowhere)
    assert done.code == 2
    assert "the file 'no/p.yaml' cannot be written" in done.err


# ---- show


@pytest.fixture
def shown(replan, servers, tmp_path):
    (tmp_path / "p.yaml").write_text(WRITTEN)
    with ScriptedServer("It is sent.") as server:
        assert replan("run", "--plan", "p.yaml", "--run-id", "r1", *servers, *replan.model(server)).code == 0
    return replan


def test_show_lists_the_plan_where_there_is_no_terminal(shown):
    lines = shown("show", "r1", "--plan").out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("* [x] a: Add (done, 0.")
    assert lines[1].startswith("*   [x] b: Send it (done, 0.")
    assert lines[1].endswith(" s, direct)  <- a")
    assert lines[2].startswith("* longest chain: a, b (0.")


def test_show_draws_the_plan_on_a_terminal(shown, in_terminal):
    terminal = in_terminal("show", "r1", "--plan")
    assert terminal.wait() == 0
    lines = terminal.text.splitlines()
    assert lines[0].startswith("┏━━━")
    assert lines[1].startswith("┃ [x] a  ")
    assert "▼" in terminal.text
    assert "Thick: longest chain: a, b" in terminal.text
    assert "\x1b[32m" in terminal.raw
    bare = in_terminal("show", "r1", "--plan", NO_COLOR="1")
    assert bare.wait() == 0
    assert "\x1b[" not in bare.raw
    dumb = in_terminal("show", "r1", "--plan", TERM="dumb")
    assert dumb.wait() == 0
    assert dumb.text.startswith("* [x] a: Add")


def test_show_gives_mermaid_svg_and_json(shown, tmp_path):
    assert shown("show", "r1", "--mermaid").out.startswith("flowchart TD\n    accTitle: Plan of run r1\n")
    done = shown("show", "r1", "--svg", "plan.svg")
    assert (done.code, done.out, done.err) == (0, "", "written to plan.svg\n")
    assert ET.parse(tmp_path / "plan.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert shown("show", "r1", "--svg", "-").out == (tmp_path / "plan.svg").read_text()
    [data] = shown("show", "r1", "--plan", "--json").lines
    assert (data["edges"], data["critical"]) == ([["a", "b"]], ["a", "b"])
    assert shown("show", "r1", "--mermaid", "--svg", "x.svg").code == 2


def test_a_run_without_a_plan_has_no_picture(replan):
    with ScriptedServer("Hello.") as server:
        replan("run", "x", "--plain", "--run-id", "r1", *replan.model(server))
    done = replan("show", "r1", "--plan")
    assert done.code == 2
    assert "run 'r1' has no plan" in done.err
