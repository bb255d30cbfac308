"""Plans and calls that a person is asked about: at the terminal, and from other processes."""

import json
import signal
import stat
import sys

import pytest
from tools_for_cli import send

from replan.testing import ScriptedServer, call
from replan.testing.mcp import stdio_server

TO_SEND = ("t__send", {"text": "hello"})


@pytest.fixture
def mcp(tmp_path):
    """The option that gives a run the tool `t__send`, which writes."""
    server = stdio_server(send)
    env = {**(server.env or {}), "CLI_TEST_FOLDER": str(tmp_path)}
    config = {"t": {"command": server.command, "args": list(server.args), "env": env}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": config}))
    return ["--mcp", "mcp.json"]


@pytest.fixture
def sent(tmp_path):
    """Gives what was sent so far."""

    def read():
        file = tmp_path / "sent"
        return file.read_text().splitlines() if file.exists() else []

    return read


@pytest.fixture
def waiting(replan, mcp, planned):
    """A run that waits for its plan to be accepted; gives the server that goes on answering."""
    with ScriptedServer(planned(TO_SEND), otherwise="All done.") as server:
        words = ["--review", "writes", "--unattended", "wait", "--run-id", "r1", *mcp, *replan.model(server)]
        done = replan("run", "Say hello", *words)
        assert done.code == 3, done.err
        server.said = done.err
        yield server


@pytest.fixture
def editor(tmp_path):
    """Makes an editor: a script of what it does to the text of the file, given as Python code."""

    def make(code):
        path = tmp_path / "editor with spaces.py"
        path.write_text(
            f"#!{sys.executable}\nimport sys, pathlib\n"
            f"file = pathlib.Path(sys.argv[1]); text = file.read_text()\n{code}\nfile.write_text(text)\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"VISUAL": f"'{path}'", "TMPDIR": str(tmp_path)}

    return make


def test_a_run_that_waits_says_how_it_is_answered(waiting):
    assert "replan: the run waits for a person; answer in a terminal with: replan resume r1\n" in waiting.said
    assert "  or answer with: replan answer r1 (accept | edit --plan FILE | reject [--reason TEXT])\n" in waiting.said


def test_the_inbox_shows_what_is_asked(replan, waiting):
    done = replan("inbox")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("r1  plan-review  review/1")
    assert lines[1] == "    goal: Say hello"
    assert lines[2].startswith("    s1  direct  Call t__send")
    assert lines[3].startswith('        t__send(text="hello"')
    assert lines[-1] == "    answer with: replan answer r1 (accept | edit --plan FILE | reject [--reason TEXT])"
    assert replan("inbox", "r1").out == done.out
    [item] = replan("inbox", "--json").lines
    assert (item["run_id"], item["name"], item["body"]["goal"]) == ("r1", "plan-review", "Say hello")
    assert item["body"]["plan"]["steps"][0]["call"] == {"tool": "t__send", "arguments": {"text": "hello"}}
    assert replan("inbox", "r2").code == 1


def test_an_accepted_plan_is_run(replan, waiting, sent):
    done = replan("answer", "r1", "accept")
    assert (done.code, done.err) == (0, "answered; go on with: replan resume r1\n")
    assert sent() == []
    again = replan("answer", "r1", "accept")
    assert again.code == 1
    assert "run 'r1' waits for nothing: it was answered already" in again.err
    done = replan("resume", "r1")
    assert (done.code, done.out) == (0, "All done.\n")
    assert sent() == ["hello"]
    assert replan("inbox").err == "nothing waits for a person\n"
    named = replan("answer", "r1", "review/1", "reject")
    assert named.code == 1
    assert "has no open question 'review/1': it was answered already" in named.err


def test_a_rejected_plan_is_not_run(replan, waiting, sent):
    assert replan("answer", "r1", "review/1", "reject").code == 0
    done = replan("resume", "r1")
    assert done.code == 4
    assert "replan: stopped: the plan was not accepted\n" in done.err
    assert sent() == []


def test_a_reason_reaches_the_planner_and_the_next_plan_is_asked_about(replan, waiting, sent):
    assert replan("answer", "r1", "reject", "--reason", "do not shout").code == 0
    assert replan("resume", "r1").code in (3, 4)
    assert "do not shout" in json.dumps(waiting.requests[-1].json["messages"])
    assert sent() == []


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_edited_plan_is_run_in_its_place(replan, waiting, sent, tmp_path, form):
    [item] = replan("inbox", "--json").lines
    plan = item["body"]["plan"]
    plan["steps"][0]["call"]["arguments"]["text"] = "good morning"
    text = json.dumps(plan)
    if form == "yaml":
        text = (
            "steps:\n  - id: s1\n    description: Greet\n    call: {tool: t__send, arguments: {text: good morning}}\n"
        )
    (tmp_path / "plan").write_text(text)
    assert replan("answer", "r1", "edit", "--plan", "plan").code == 0
    done = replan("resume", "r1")
    assert (done.code, sent()) == (0, ["good morning"])


REFUSED = [
    (["allow"], "'review/1' is of the kind 'plan-review'; answer it with accept | edit --plan FILE | reject"),
    (["done", "--result", "x"], "is of the kind 'plan-review'"),
    (["accept", "--reason", "x"], "'accept' takes no --reason"),
    (["edit"], "'edit' needs the plan: --plan FILE"),
    (["edit", "--plan", "missing.yaml"], "the plan 'missing.yaml' cannot be read"),
    (["edit", "--plan", "broken.yaml"], "the plan cannot be read: "),
    (["edit", "--plan", "odd.yaml"], "unknown fields: steps[0].depend_on (depends_on?)"),
    (["edit", "--plan", "none.yaml"], "the plan has no steps"),
    (["edit", "--plan", "text.yaml"], "steps[0] is no step"),
    (["edit", "--plan", "wrong.yaml"], "steps[0] cannot be used: "),
    (["maybe"], "'maybe' is no answer; say accept | edit --plan FILE | reject [--reason TEXT], or give JSON"),
    (["a", "b", "accept"], "there is one answer too many"),
]


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(replan, waiting, tmp_path):
    (tmp_path / "broken.yaml").write_text("steps: [")
    (tmp_path / "odd.yaml").write_text("steps:\n  - description: x\n    depend_on: [s1]\n")
    (tmp_path / "none.yaml").write_text("steps: []\n")
    (tmp_path / "text.yaml").write_text("steps:\n  - look\n")
    (tmp_path / "wrong.yaml").write_text("steps:\n  - description: x\n    call: send\n")
    for words, says in REFUSED:
        done = replan("answer", "r1", *words)
        assert (done.code, says in done.err) == (2, True), (words, done.err)
    assert len(replan("inbox", "--json").lines) == 1


def test_a_key_that_is_not_open_is_refused(replan, waiting):
    done = replan("answer", "r1", "review/9", "accept")
    assert done.code == 1
    assert "run 'r1' has no open question 'review/9'" in done.err
    assert "see what is open with: replan inbox r1" in done.err
    assert replan("answer", "r9", "accept").code == 1


def test_an_answer_can_be_json(replan, waiting, sent):
    assert replan("answer", "r1", '{"decision": "accept"}').code == 0
    assert replan("resume", "r1").code == 0
    assert sent() == ["hello"]


def test_without_a_journal_there_is_nothing_to_answer(replan):
    assert (replan("inbox").code, replan("inbox", "r1").code, replan("answer", "r1", "accept").code) == (0, 2, 2)


def test_commands_name_the_journal_that_is_not_the_default_one(replan, mcp, planned):
    with ScriptedServer(planned(TO_SEND)) as server:
        words = ["--review", "always", "--unattended", "wait", "--run-id", "r1", "--journal", "o.db", *mcp]
        done = replan("run", "x", *words, *replan.model(server))
    assert done.code == 3
    assert "answer with: replan answer r1 --journal o.db (accept | " in done.err
    assert "replan answer r1 --journal o.db (" in replan("inbox", "--journal", "o.db").out
    done = replan("answer", "r1", "accept", "--journal", "o.db")
    assert done.err == "answered; go on with: replan resume r1 --journal o.db\n"


def test_without_a_terminal_a_plan_that_would_have_to_be_accepted_is_not_run(replan, mcp, planned, sent):
    with ScriptedServer(planned(TO_SEND), otherwise="x") as server:
        done = replan("run", "x", "--review", "writes", *mcp, *replan.model(server))
    assert (done.code, sent()) == (4, [])
    assert "the plan was not accepted" in done.err


def test_a_plain_run_has_no_plan_to_review(replan):
    done = replan("run", "x", "--plain", "--review", "writes", *replan.nowhere)
    assert done.code == 2
    assert "--review writes is for plans" in done.err


# ---- at the terminal


@pytest.fixture
def reviewed(replan, mcp, planned, in_terminal):
    """Starts a run at a terminal, whose plan sends something, and waits for the question."""
    with ScriptedServer(planned(TO_SEND), otherwise="All done.") as server:

        def start(*words, **environment):
            asked = ["--review", "writes", "--run-id", "r1", *mcp, *replan.model(server), *words]
            terminal = in_terminal("run", "Say hello", *asked, **environment)
            terminal.until("Is it to be run? [a]ccept, [e]dit, [r]eject: ")
            return terminal

        yield start


def test_a_plan_is_shown_and_accepted(reviewed, sent):
    terminal = reviewed()
    for text in ("The plan for: Say hello", "what it does", "direct", 't__send(text="hello"'):
        assert text in terminal.text
    assert sent() == []
    terminal.type("x\r")
    terminal.until("Please answer with a, e or r.")
    terminal.type("a\r")
    terminal.until("All done.")
    assert terminal.wait() == 0
    assert sent() == ["hello"]


def test_a_terminal_that_cannot_be_drawn_on_shows_the_plan_in_lines(reviewed, sent):
    terminal = reviewed(TERM="dumb")
    assert "  s1  direct  Call t__send\r\n" in terminal.text
    terminal.type("accept\r")
    assert terminal.wait() == 0
    assert sent() == ["hello"]


@pytest.mark.parametrize("keys", ["r\r\r", "\x04"])
def test_a_plan_is_rejected(reviewed, sent, keys):
    terminal = reviewed()
    terminal.type(keys[:2])
    if keys != "\x04":
        terminal.until("Why, and what should be different? (empty: no reason) ")
        terminal.type("\r")
    terminal.until("replan: stopped: the plan was not accepted")
    assert terminal.wait() == 4
    assert sent() == []


def test_what_was_typed_before_the_question_is_no_answer(replan, mcp, planned, in_terminal, sent):
    with ScriptedServer(planned(TO_SEND), otherwise="All done.") as server:
        terminal = in_terminal("run", "x", "--review", "writes", *mcp, *replan.model(server))
        terminal.type("a\r")
        terminal.until("[r]eject: ")
        terminal.type("r\r")
        terminal.until("no reason) ")
        terminal.type("\r")
        assert terminal.wait() == 4
    assert sent() == []


def test_a_plan_is_edited_and_run(reviewed, sent, editor, tmp_path):
    terminal = reviewed(**editor("text = text.replace('hello', 'good morning')"))
    terminal.type("e\r")
    terminal.until("[d]rop the edit: ")
    assert 't__send(text="good morning")' in terminal.text
    terminal.type("a\r")
    assert terminal.wait() == 0
    assert sent() == ["good morning"]
    assert not list(tmp_path.glob("replan-plan-*"))


def test_a_broken_edit_is_kept_and_can_be_mended(reviewed, sent, editor, tmp_path):
    again = "text = text.replace('steps: [', '') if 'steps: [' in text else text.replace('hello', 'bye') + 'steps: ['"
    terminal = reviewed(**editor(again))
    terminal.type("e\r")
    terminal.until("the plan cannot be read: ")
    terminal.until("What now? [e]dit again, [d]rop this edit: ")
    terminal.type("e\r")
    terminal.until("[d]rop the edit: ")
    terminal.type("a\r")
    assert terminal.wait() == 0
    assert sent() == ["bye"]


def test_an_edited_plan_that_cannot_be_run_is_asked_about_again_and_goes_on_from_the_edit(reviewed, sent, editor):
    wrong, right = "text.replace('t__send', 't__sent')", "text.replace('t__sent', 't__send').replace('hello', 'bye')"
    terminal = reviewed(**editor(f"text = {right} if 't__sent' in text else {wrong}"))
    terminal.type("e\r")
    terminal.until("[d]rop the edit: ")
    terminal.type("a\r")
    terminal.until("why: The edited plan cannot be run: ")
    terminal.type("e\r")
    terminal.until('t__send(text="bye")')
    terminal.type("a\r")
    terminal.until("All done.")
    assert terminal.wait() == 0
    assert sent() == ["bye"]


def test_a_dropped_edit_changes_nothing(reviewed, sent, editor):
    terminal = reviewed(**editor("text = text.replace('hello', 'bye')"))
    terminal.type("e\r")
    terminal.until("[d]rop the edit: ")
    terminal.type("d\r")
    terminal.until("[r]eject: ")
    terminal.type("a\r")
    assert terminal.wait() == 0
    assert sent() == ["hello"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"VISUAL": "no-such-editor -w"}, "the editor 'no-such-editor' cannot be started"),
        ({"VISUAL": "false"}, "the editor 'false' ended with the code 1"),
        ({"VISUAL": "'"}, 'VISUAL is "\'", which is no command'),
        ({"VISUAL": "", "EDITOR": " ", "PATH": "/nowhere"}, "there is no editor; set EDITOR to one"),
    ],
)
def test_an_editor_that_fails_changes_nothing(reviewed, sent, environment, says):
    terminal = reviewed(**environment)
    terminal.type("e\r")
    terminal.until(says)
    terminal.until("What now? ")
    terminal.type("d\r")
    terminal.until("[r]eject: ")
    terminal.type("a\r")
    assert terminal.wait() == 0
    assert sent() == ["hello"]


def test_an_edit_is_kept_when_the_run_is_interrupted(reviewed, sent, editor, tmp_path):
    terminal = reviewed(**editor("text = text.replace('hello', 'bye')"))
    terminal.type("e\r")
    terminal.until("[d]rop the edit: ")
    terminal.type("\x03")
    terminal.until("the edited plan is kept in ")
    assert terminal.wait() == 130
    [folder] = tmp_path.glob("replan-plan-*")
    assert "bye" in (folder / "plan.yaml").read_text()
    assert sent() == []


def test_a_paused_review_is_answered_where_the_run_is_resumed(replan, waiting, in_terminal, sent):
    terminal = in_terminal("resume", "r1")
    terminal.until("[r]eject: ")
    terminal.type("a\r")
    assert terminal.wait() == 0
    assert sent() == ["hello"]


def test_the_plan_can_be_edited_when_it_is_answered(replan, waiting, in_terminal, editor, sent):
    terminal = in_terminal("answer", "r1", "edit", **editor("text = text.replace('hello', 'bye')"))
    terminal.until("answered; go on with: replan resume r1")
    assert terminal.wait() == 0
    assert replan("resume", "r1").code == 0
    assert sent() == ["bye"]


def test_an_unchanged_plan_is_no_answer(replan, waiting, in_terminal, editor):
    terminal = in_terminal("answer", "r1", "edit", **editor(""))
    terminal.until("the plan was not changed, and nothing was answered")
    assert terminal.wait() == 2
    assert len(replan("inbox", "--json").lines) == 1


# ---- calls outside of what was accepted


@pytest.fixture
def outside(replan, mcp, planned):
    """The options of a run whose plan, an open step, does not name the call that its executor makes."""
    script = [planned("Say it."), call("t__send", text="hello"), "I have said it."]
    with ScriptedServer(*script, otherwise="All done.") as server:
        server.words = ["Say hello", "--review", "writes", "--run-id", "r1", *mcp, *replan.model(server)]
        yield server


@pytest.mark.parametrize(
    ("keys", "told", "texts"),
    [
        (["a\r"], "sent hello", ["hello"]),
        (["d\r", "not to him\r"], "Denied: not to him.", []),
        (["d\r", "\r"], "Denied.", []),
        (["\x04"], "Denied.", []),
    ],
)
def test_a_call_outside_of_the_plan_is_asked_about(outside, in_terminal, sent, keys, told, texts):
    terminal = in_terminal("run", *outside.words)
    terminal.until("[r]eject: ")
    terminal.type("a\r")
    terminal.until("May it be made? [a]llow, [d]eny: ")
    assert "This call in step s1 is not part of what was accepted:" in terminal.text
    assert 't__send(text="hello")' in terminal.text
    assert "'t__send' is not in the plan" in terminal.text
    terminal.type(keys[0])
    if len(keys) > 1:
        terminal.until("Why? (empty: no reason) ")
        terminal.type(keys[1])
    terminal.until("All done.")
    assert terminal.wait() == 0
    assert sent() == texts
    assert told in json.dumps([request.json["messages"] for request in outside.requests])


def test_a_call_outside_of_the_plan_is_allowed_from_another_process(outside, replan, sent):
    assert replan("run", *outside.words, "--unattended", "wait").code == 3
    assert replan("answer", "r1", "accept").code == 0
    done = replan("resume", "r1")
    assert done.code == 3
    assert "  or answer with: replan answer r1 (allow | deny [--reason TEXT])\n" in done.err
    lines = replan("inbox").out.splitlines()
    assert lines[0].startswith("r1  approval  ")
    assert lines[1:3] == ['    t__send(text="hello") in step s1', "    't__send' is not in the plan"]
    assert replan("answer", "r1", "accept").code == 2
    assert replan("answer", "r1", "allow").code == 0
    assert sent() == []
    assert replan("resume", "r1").code == 0
    assert sent() == ["hello"]


# ---- across processes


def test_a_review_is_answered_from_another_process_after_the_first_was_killed(replan, mcp, planned, until, sent):
    with ScriptedServer(planned(TO_SEND, ("t__send", {"text": "again"})), otherwise="All done.") as server:
        words = ["--review", "writes", "--unattended", "wait", "--run-id", "r1", *mcp, *replan.model(server)]
        first = replan.process("run", "Say hello", *words)
        until(lambda: replan("inbox").out)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert sent() == []
        answered = replan.finish(replan.process("answer", "r1", "accept"))
        assert (answered.code, answered.err) == (0, "answered; go on with: replan resume r1\n")
        done = replan.finish(replan.process("resume", "r1"))
        assert (done.code, done.out) == (0, "All done.\n")
        assert sent() == ["hello", "again"]
        assert len(server.requests) == 2
