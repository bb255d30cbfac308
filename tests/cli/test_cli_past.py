import asyncio
import json

import pytest

from replan import Agent
from replan.errors import AuthError
from replan.journal.sqlite import SqliteJournal
from replan.testing import ScriptedModel, ScriptedServer, error_reply


@pytest.fixture
def answered(replan, planned):
    with ScriptedServer(planned("Think hard.", thought="Just think."), "Thought.", "The answer.") as server:
        done = replan("run", "What is [bold]it[/bold]?", "--run-id", "r1", *replan.model(server))
    assert done.code == 0
    return replan


def test_show_tells_goal_plan_answer_and_figures(answered):
    lines = answered("show", "r1").out.splitlines()
    assert lines[0].startswith("run      r1  (planning agent, ")
    assert lines[1:3] == ["goal     What is [bold]it[/bold]?", "status   complete"]
    assert lines[3].startswith("[x] 1. Think hard. (")
    assert lines[4].startswith("used     300 tokens in, 30 out, ")
    assert lines[5:] == ["", "The answer."]


def test_show_gives_everything_as_json(answered):
    [shown] = answered("show", "r1", "--json").lines
    assert (shown["run_id"], shown["status"], shown["answer"]) == ("r1", "complete", "The answer.")
    assert shown["goal"] == "What is [bold]it[/bold]?"
    assert [(step["id"], step["state"], step["summary"]) for step in shown["steps"]] == [("s1", "done", "Thought.")]
    assert shown["plan"]["thought"] == "Just think."
    assert shown["usage"]["input_tokens"] == 300
    assert shown["error"] is None


def test_runs_are_listed_newest_first(answered):
    with ScriptedServer(error_reply(401)) as server:
        answered("run", "other\ngoal", "--run-id", "r2", "--plain", *answered.model(server))
    listed = answered("runs").out.splitlines()
    assert [line.split()[:2] for line in listed] == [["r2", "failed"], ["r1", "complete"]]
    assert listed[0].endswith("agent           other goal")
    assert [run["run_id"] for run in answered("runs", "--json", "--limit", "1").lines] == ["r2"]


def test_a_failed_run_shows_its_error(replan):
    with ScriptedServer(error_reply(401, "bad key")) as server:
        replan("run", "x", "--run-id", "r1", *replan.model(server))
    assert "bad key" in next(line for line in replan("show", "r1").out.splitlines() if line.startswith("error "))


def test_no_runs_is_no_error(replan):
    done = replan("runs")
    assert (done.code, done.out, done.err) == (0, "", "no runs yet\n")
    assert not replan.journal.exists()


def test_what_is_not_there_is_told(answered, tmp_path):
    gone = answered("show", "r9")
    assert (gone.code, gone.err) == (1, "replan: the journal has no run 'r9'; list what it has with: replan runs\n")
    assert answered("resume", "r9").err == gone.err
    elsewhere = answered("runs", "--journal", str(tmp_path / "none.db"))
    assert elsewhere.code == 2
    assert "none.db" in elsewhere.err


def test_a_complete_run_is_not_resumed(answered):
    done = answered("resume", "r1")
    assert (done.code, done.err) == (1, "replan: run 'r1' is complete; see it with: replan show r1\n")


def test_a_run_of_a_program_is_shown_and_not_resumed(replan):
    async def work():
        journal = SqliteJournal(replan.journal)
        async with Agent(ScriptedModel(AuthError("no key")), journal=journal) as agent:
            with pytest.raises(AuthError):
                await agent.run("x", run_id="r1")
        await journal.close()

    asyncio.run(work())
    assert "status   failed" in replan("show", "r1").out
    done = replan("resume", "r1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "was not started by `replan run`" in done.err


def test_the_default_journal_is_in_the_state_folder(replan, monkeypatch, tmp_path):
    monkeypatch.delenv("REPLAN_JOURNAL")
    with ScriptedServer("Fine.") as server:
        assert replan("run", "--plain", "x", *replan.model(server)).code == 0
    assert (tmp_path / "state" / "replan" / "runs.db").is_file()


def test_a_journal_can_be_named(replan, tmp_path):
    with ScriptedServer(error_reply(401)) as server:
        done = replan("run", "--plain", "x", "--run-id", "r1", "--journal", "my runs.db", *replan.model(server))
    assert done.err.endswith("replan resume r1 --journal 'my runs.db'\n")
    assert replan("runs", "--journal", "my runs.db", "--json").lines[0]["run_id"] == "r1"
    assert not replan.journal.exists()


def test_results_are_clipped_for_people_only(replan, planned):
    with ScriptedServer(planned("Think."), "word " * 500, "The answer.") as server:
        replan("run", "x " * 2000, "--run-id", "r1", *replan.model(server))
    assert max(map(len, replan("show", "r1").out.splitlines())) < 1100
    [shown] = replan("show", "r1", "--json").lines
    assert len(shown["steps"][0]["summary"]) > 2400
    assert json.dumps(shown)
