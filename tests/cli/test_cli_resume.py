import json
import signal

import pytest
from tools_for_cli import add, hang

from replan.cli.recipe import Recipe, stored
from replan.testing import ScriptedServer, call, error_reply
from replan.testing.mcp import stdio_server


def config(*functions, **env):
    server = stdio_server(*functions)
    return {"t": {"command": server.command, "args": list(server.args), "env": {**(server.env or {}), **env}}}


@pytest.fixture
def doubtful(replan, until, tmp_path):
    """A run that was killed in the middle of a call that may write. Gives the server that goes on answering."""
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": config(hang, CLI_TEST_FOLDER=str(tmp_path))}))
    with ScriptedServer(call("t__hang", text="mail"), otherwise="Fine.") as server:
        process = replan.process("run", "--plain", "x", "--run-id", "r1", "--mcp", "mcp.json", *replan.model(server))
        until((tmp_path / "hangs").exists)
        process.send_signal(signal.SIGKILL)
        process.wait()
        yield server


def results(server):
    """What the model was told of its calls."""
    messages = server.requests[-1].json["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_without_a_terminal_nobody_is_asked_and_the_model_reads_that_the_outcome_is_unknown(replan, doubtful):
    done = replan("resume", "r1")
    assert (done.code, done.out) == (0, "Fine.\n")
    [result] = results(doubtful)
    assert "Outcome unknown" in str(result)
    assert len(doubtful.requests) == 2


def test_a_run_that_waits_for_a_person_exits_with_3(replan, doubtful):
    done = replan("resume", "r1", "--unattended", "wait")
    assert (done.code, done.out) == (3, "")
    assert "replan: the run waits for a person; answer in a terminal with: replan resume r1\n" in done.err
    assert replan("runs", "--json").lines[0]["status"] == "paused"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["done", "--result", "It was sent."], "It was sent."),
        (["done"], "a person has confirmed"),
        (['{"outcome": "done", "result": "by hand"}'], "by hand"),
        (["null"], "Outcome unknown"),
    ],
)
def test_what_became_of_a_call_is_answered_from_another_process(replan, doubtful, words, told):
    assert replan("resume", "r1", "--unattended", "wait").code == 3
    lines = replan("inbox").out.splitlines()
    assert lines[0].startswith("r1  in-doubt  ")
    assert lines[1:] == [
        '    t__hang(text="mail")',
        "    answer with: replan answer r1 (done [--result TEXT] | not-done)",
    ]
    assert replan("answer", "r1", *words).code == 0
    assert replan("resume", "r1").code == 0
    assert told in str(results(doubtful))


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("d\rIt was sent.\r", "It was sent."),
        ("x\ru\r", "Outcome unknown"),
        ("d\r\r", "a person has confirmed"),
        ("\x04", "Outcome unknown"),
    ],
)
def test_a_person_at_the_terminal_is_asked_what_became_of_a_call(replan, doubtful, in_terminal, typed, told):
    terminal = in_terminal("resume", "r1")
    terminal.until("What became of it? [d]one, [n]ot done, [u]nknown: ")
    assert 't__hang(text="mail")' in terminal.text
    for key in typed:
        terminal.type(key)
    terminal.until("Fine.")
    assert terminal.wait() == 0
    assert told in str(results(doubtful))


def test_a_call_that_was_not_done_is_made_again(replan, doubtful, in_terminal, until, tmp_path):
    (tmp_path / "hangs").unlink()
    terminal = in_terminal("resume", "r1")
    terminal.until("[u]nknown: ")
    terminal.type("n\r")
    until((tmp_path / "hangs").exists)
    terminal.type("\x03")
    terminal.until("go on with: replan resume r1")
    assert terminal.wait() == 130


def test_the_question_can_be_interrupted(replan, doubtful, in_terminal):
    terminal = in_terminal("resume", "r1")
    terminal.until("[u]nknown: ")
    terminal.type("\x03")
    terminal.until("replan: interrupted; go on with: replan resume r1")
    assert terminal.wait() == 130


def test_what_a_run_was_started_with_is_used_again_unless_overridden(replan, tmp_path):
    (tmp_path / "rules.md").write_text("Speak like a pirate.")
    with ScriptedServer(error_reply(401), error_reply(401), "Arr.") as server:
        words = [
            "--system-prompt",
            "@rules.md",
            "--mcp",
            json.dumps(config(add, TOKEN="${HOME}")),
            *replan.model(server),
        ]
        replan("run", "--plain", "x", "--run-id", "r1", "--max-turns", "7", *words)
        (tmp_path / "rules.md").unlink()
        env = replan("resume", "r1")
        assert env.code == 2
        assert "t.env.PYTHONPATH" in env.err
        assert "t.env.TOKEN" not in env.err
        again = replan("resume", "r1", "--mcp", json.dumps(config(add)))
        assert again.code == 1
        done = replan("resume", "r1", "--mcp", json.dumps(config(add)), "--model", "openai-compatible:y")
        asked = [request.json for request in server.requests]
    assert (done.code, done.out) == (0, "Arr.\n")
    assert [one["model"] for one in asked] == ["x", "x", "y"]
    assert all("pirate" in json.dumps(one["messages"][0]) for one in asked)
    assert [one["tools"][0]["function"]["name"] for one in asked] == ["t__add"] * 3


def test_another_folder_is_warned_of(replan, tmp_path, monkeypatch):
    (tmp_path / "mcp.json").write_text(json.dumps(config(add)))
    with ScriptedServer(error_reply(401), "Fine.") as server:
        replan("run", "--plain", "x", "--run-id", "r1", "--mcp", "mcp.json", *replan.model(server))
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        done = replan("resume", "r1")
    assert done.code == 0
    assert f"warning: the run was started in {str(tmp_path)!r}" in done.err


SECRETS = {
    "a": {"command": "x", "args": ["--token", "S1", "--api-key=S2", "--name", "n"], "env": {"K": "S3", "R": "${R}"}},
    "b": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer S4", "X": "Bearer ${X}", "Y": "S5${Y}"}},
    "c": "https://user:S6@h/mcp",
    "d": "https://h/mcp?key=S7",
    "e": {"url": "https://h/mcp", "headers": {"Z": "${Z:-S8}"}},
}


@pytest.mark.parametrize("wrapped", [SECRETS, {"mcpServers": SECRETS}])
def test_secrets_are_not_stored(wrapped):
    kept = stored(Recipe(model="m", mcp=(wrapped, "/mcp.json"), base_url="https://u:S9@h/v1"))["cli"]
    assert not any(f"S{number}" in json.dumps(kept) for number in range(10))
    servers = kept["mcp"][0].get("mcpServers", kept["mcp"][0])
    none = "<not stored>"
    assert servers["a"]["args"] == ["--token", none, f"--api-key={none}", "--name", "n"]
    assert servers["a"]["env"] == {"K": none, "R": "${R}"}
    assert servers["b"] == {"url": "https://h/mcp", "headers": {"Authorization": none, "X": "Bearer ${X}", "Y": none}}
    assert kept["mcp"][1] == "/mcp.json"


def test_the_journal_holds_no_secret(replan, tmp_path):
    with ScriptedServer(error_reply(401)) as server:
        replan("run", "--plain", "x", "--mcp", json.dumps(config(add, TOKEN="S3cr3t")), *replan.model(server))
    assert all(b"S3cr3t" not in file.read_bytes() for file in tmp_path.glob("runs.db*"))


def test_json_of_a_resumed_run_holds_what_is_new_and_the_plan(replan, planned):
    with ScriptedServer(planned("One.", "Two."), "Did one.", error_reply(401), "Did two.", "The answer.") as server:
        assert replan("run", "x", "--run-id", "r1", *replan.model(server)).code == 1
        done = replan("resume", "r1", "--json")
    kinds = [line["type"] for line in done.lines]
    assert done.code == 0
    assert kinds.count("plan.created") == 1
    assert kinds.count("step.complete") == 1
    assert "run.start" not in kinds
