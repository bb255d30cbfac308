import json
import subprocess
import sys
from contextlib import ExitStack

import pytest
from tools_for_cli import add

from replan import events
from replan.messages import Refusal, Thinking
from replan.testing import ScriptedServer, call, error_reply, sse_reply
from replan.testing.mcp import stdio_server


def mcp(*functions: object, **env: str) -> str:
    """An inline configuration of a server with these tools."""
    server = stdio_server(*functions)
    return json.dumps(
        {"calc": {"command": server.command, "args": list(server.args), "env": {**(server.env or {}), **env}}}
    )


@pytest.fixture
def give_stdin(monkeypatch, tmp_path):
    """Makes the given bytes the standard input, from a file."""
    with ExitStack() as stack:

        def give(data):
            (tmp_path / "input").write_bytes(data)
            monkeypatch.setattr(sys, "stdin", stack.enter_context((tmp_path / "input").open()))

        yield give


def test_the_answer_alone_goes_to_standard_output(replan, planned):
    script = [planned(("calc__add", {"a": 2, "b": 3}), "Think.", thought="First add."), [Thinking("hm"), "It is 5."]]
    with ScriptedServer(*script, "The answer\nis 5.") as server:
        process = replan.process("run", "What is 2+3?", "--mcp", mcp(add), *replan.model(server))
        done = replan.finish(process)
    assert (done.code, done.out) == (0, "The answer\nis 5.\n")
    lines = done.err.splitlines()
    assert lines[:3] == ["thought: First add.", "plan: 1. Call calc__add", "plan: 2. Think."]
    assert lines[3].startswith("price: 2-")
    assert lines[4:6] == ["step 1: Call calc__add", "  calc__add(a=2, b=3)"]
    assert lines[6].startswith("  calc__add: ok, ")
    assert lines[6].endswith(" s: 5")
    assert lines[-1].startswith("300 tokens in, 30 out · ")
    assert "\x1b" not in done.err


def test_json_events_decode_and_nothing_else_is_written(replan, planned):
    with ScriptedServer(planned("Think.", thought="\x9b31m"), "It is 5.", "The answer.") as server:
        done = replan("run", "--json", "What?", *replan.model(server))
    decoded = [events.from_json(line) for line in done.lines]
    kinds = [type(event) for event in decoded]
    assert (done.code, done.err) == (0, "")
    assert kinds[0] is events.RunStart
    assert kinds[-1] is events.RunComplete
    assert {events.PlanCreated, events.StepStart, events.StepComplete, events.FinalTextDelta, events.Final} <= set(
        kinds
    )
    assert "\x9b" not in done.out


def test_the_plain_agent_makes_no_plan(replan):
    with ScriptedServer(["Let me add.", call("calc__add", a=2, b=3)], "5") as server:
        done = replan("run", "--plain", "What is 2+3?", "--mcp", mcp(add), *replan.model(server))
        asked = server.requests
    assert (done.code, done.out) == (0, "5\n")
    assert "  | Let me add." in done.err
    assert len(asked) == 2


@pytest.mark.parametrize("words", [["-"], []])
def test_the_goal_comes_from_a_pipe(replan, give_stdin, words):
    give_stdin("\ufeffWhat's up?\n".encode())
    with ScriptedServer("Fine.") as server:
        done = replan("run", "--plain", *words, *replan.model(server))
        assert server.requests[0].json["messages"][-1]["content"] == "What's up?"
    assert (done.code, done.out) == (0, "Fine.\n")


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_an_empty_goal_is_wrong_use(replan, give_stdin, data):
    give_stdin(data)
    done = replan("run", "--plain")
    assert (done.code, done.out) == (2, "")
    assert done.err == "replan: the goal is empty; say what is to be done: replan run 'What is ...?'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "x", "--max-turns", "0"], "'0' is no whole number of at least 1"),
        (["run", "x", "--max-turns", "many"], "'many' is no whole number"),
        (["run", "x", "--timeout", "0"], "'0' is no number of seconds above 0"),
        (["run", "x", "--modle", "y"], "--modle"),
        (["run", "x", "--model", "nobody:y"], "'nobody:y'"),
        (["run", "x", "--model", "openai:y"], "OPENAI_API_KEY"),
        (
            ["run", "x", "--model", "openai-compatible:y", "--base-url", "http://127.0.0.1:1", "--mcp", "none.json"],
            "none.json",
        ),
        (["run", "x", "--mcp", "{"], "--mcp is no JSON"),
        (["run", "x", "--mcp", "https://mcp.example.com"], "give the server a name"),
        (["run", "x", "--system-prompt", "@nowhere.txt"], "nowhere.txt"),
        (["run", "x", "--env-file", "nowhere.env"], "nowhere.env"),
        (["run", "x", "--journal", "a.db", "--no-journal"], "--no-journal"),
        (
            [
                "run",
                "x",
                "--run-id",
                "a/b",
                "--plain",
                "--model",
                "openai-compatible:y",
                "--base-url",
                "http://127.0.0.1:1",
            ],
            "'a/b'",
        ),
        (["nothing"], "nothing"),
        (["tools"], "--mcp"),
        (["resume", "x"], "there is no journal"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(replan, words, said):
    done = replan(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.startswith("replan: ")
    assert done.err.count("\n") == 1


def test_no_command_prints_help_and_exits_with_2(replan):
    done = replan()
    assert done.code == 2
    assert "usage: replan" in done.err


def test_a_failed_run_says_why_and_how_to_go_on(replan):
    with ScriptedServer(error_reply(401, "bad key")) as server:
        done = replan("run", "x", "--run-id", "r1", *replan.model(server))
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "bad key" in done.err
    assert done.err.endswith("; go on with: replan resume r1\n")


def test_tracebacks_are_for_debugging(replan):
    with ScriptedServer(error_reply(401)) as server:
        assert "Traceback" in replan("run", "x", "--log-level", "debug", *replan.model(server)).err


def test_a_refusal_is_printed_and_exits_with_1(replan):
    with ScriptedServer([Refusal("I won't do that.")]) as server:
        done = replan("run", "--plain", "x", *replan.model(server))
    assert (done.code, done.out) == (1, "I won't do that.\n")
    assert "replan: stopped: the model refused" in done.err


def test_a_limit_exits_with_4_and_prints_what_there_is(replan):
    with ScriptedServer(otherwise=["So far so good.", call("calc__add", a=1, b=1)]) as server:
        done = replan("run", "--plain", "x", "--max-turns", "1", "--mcp", mcp(add), *replan.model(server))
    assert (done.code, done.out) == (4, "So far so good.\n")
    assert "--max-turns" in done.err


def test_a_limit_of_tokens_ends_a_plan_with_an_answer(replan, planned):
    with ScriptedServer(planned("One.", "Two."), otherwise="What there is.") as server:
        done = replan("run", "x", "--max-tokens", "200", *replan.model(server))
    assert (done.code, done.out) == (4, "What there is.\n")
    assert "warning: the limit of total is reached: 220 of 200" in done.err


def test_control_sequences_and_markup_of_models_are_not_obeyed(replan):
    with ScriptedServer("\x1b[2J\x1b]0;title\x07a\r\nb\x9b1mc [bold]d[/bold]") as server:
        done = replan("run", "--plain", "x", *replan.model(server))
    assert done.out == "a\nbc [bold]d[/bold]\n"


def test_a_repeated_model_call_leaves_nothing_of_the_first_try(replan):
    cut = sse_reply({"choices": [{"index": 0, "delta": {"content": "Wrong"}}]}, done=False, then="cut")
    with ScriptedServer(cut, "Right.") as server:
        done = replan("run", "--plain", "x", *replan.model(server))
    assert (done.code, done.out) == (0, "Right.\n")
    assert "info: attempt 1 failed, trying again in " in done.err


def test_without_a_journal_nothing_is_kept(replan):
    with ScriptedServer("Fine.") as server:
        done = replan("run", "--plain", "x", "--no-journal", *replan.model(server))
    assert done.code == 0
    assert not replan.journal.exists()


def test_the_environment_comes_from_a_file_and_does_not_replace_what_is_set(replan, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_COMPATIBLE_API_KEY")
    with ScriptedServer("Fine.") as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.base_url)
        lines = [
            "# keys",
            "",
            "export OPENAI_COMPATIBLE_API_KEY='other'",
            'OPENAI_COMPATIBLE_BASE_URL="http://127.0.0.1:1"',
        ]
        (tmp_path / "my.env").write_text("\n".join(lines))
        done = replan("run", "--plain", "x", "--env-file", "my.env", "--model", "openai-compatible:x")
        assert server.requests[0].headers["authorization"] == "Bearer other"
    assert done.code == 0


def test_a_wrong_line_of_an_env_file_is_named_without_its_content(replan, tmp_path):
    (tmp_path / "my.env").write_text("A=1\nsecret stuff\n")
    done = replan("run", "x", "--env-file", "my.env")
    assert done.code == 2
    assert "line 2" in done.err
    assert "secret" not in done.err


def test_instructions_come_from_a_file(replan, tmp_path):
    (tmp_path / "rules.md").write_text("Speak like a pirate.")
    with ScriptedServer("Arr.") as server:
        assert replan("run", "--plain", "x", "--system-prompt", "@rules.md", *replan.model(server)).code == 0
        assert "pirate" in json.dumps(server.requests[0].json["messages"][0])


def test_stages_have_models_of_their_own(replan, planned):
    with ScriptedServer(planned("Think."), "Done.", "The answer.") as server:
        done = replan(
            "run",
            "x",
            "--planner-model",
            "openai-compatible:p",
            "--synthesizer-model",
            "openai-compatible:s",
            *replan.model(server),
        )
        assert [request.json["model"] for request in server.requests] == ["p", "x", "s"]
    assert done.code == 0


def test_a_server_that_fails_is_told_of_and_the_run_goes_on(replan):
    with ScriptedServer("Fine.") as server:
        done = replan("run", "--plain", "x", "--mcp", '{"gone": {"command": "no-such-command"}}', *replan.model(server))
    assert (done.code, done.out) == (0, "Fine.\n")
    assert "no-such-command" in done.err
    assert done.err.startswith("warning: MCP server 'gone'")


def test_two_servers_of_one_name_are_refused(replan):
    done = replan("run", "x", *["--mcp", '{"a": "http://127.0.0.1:1"}'] * 2, *replan.nowhere)
    assert done.code == 2
    assert "'a'" in done.err


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_closed_pipe_ends_the_command_quietly(replan, words):
    with ScriptedServer(otherwise=" ".join(["word"] * 50)) as server:
        process = replan.process("run", "--plain", "x", *words, *replan.model(server))
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        done = replan.finish(process)
    assert done.code == 141
    assert "Traceback" not in done.err
    assert "Broken" not in done.err


def test_a_full_disk_is_told(replan):
    with ScriptedServer("Fine.") as server, open("/dev/full", "w") as full:  # noqa: PTH123
        done = replan.finish(replan.process("run", "--plain", "x", *replan.model(server), stdout=full))
    assert done.code == 1
    assert "replan: [Errno 28] No space left on device" in done.err


def test_standard_streams_may_be_closed(replan):
    with ScriptedServer("Fine.") as server:
        words = [
            "sh",
            "-c",
            'exec "$@" <&- 2>&-',
            "sh",
            sys.executable,
            "-m",
            "replan.cli",
            "run",
            "--plain",
            "x",
            *replan.model(server),
        ]
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, b"Fine.\n")
