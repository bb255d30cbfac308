import pytest

from replan import events
from replan.cli.screens import PLAIN
from replan.cli.view import TAKEN, View
from replan.usage import Usage

R = {"run_id": "r"}
PLAN = {"thought": "T", "steps": [{"id": "a", "description": "A"}, {"id": "b", "description": "B"}]}

FIELDS = {
    events.RunStart: {"goal": "g", "agent": "a"},
    events.RunComplete: {"status": "complete", "usage": Usage(), "seconds": 1.0},
    events.PlanThoughtDelta: {"delta": "x"},
    events.PlanStepAdded: {"index": 0, "id": "z", "description": "Z"},
    events.PlanCreated: {"plan": {"thought": "", "steps": []}},
    events.PlanRevised: {"plan": {"thought": "", "steps": []}, "reason": "why"},
    events.StepStart: {"step_id": "b", "index": 1, "description": "B", "kind": "open"},
    events.StepTextDelta: {"step_id": "a", "delta": "x"},
    events.StepReasoningDelta: {"step_id": "a", "delta": "x"},
    events.StepToolCall: {"step_id": "a", "call_id": "2", "tool": "t", "name": "t", "arguments": {}},
    events.StepToolProgress: {"step_id": "a", "call_id": "1", "progress": 1.0},
    events.StepToolResult: {"step_id": "a", "call_id": "1", "tool": "t", "ok": True, "output": "o", "seconds": 1.0},
    events.StepComplete: {"step_id": "a", "summary": "s", "ok": True, "blocked": False, "seconds": 1.0},
    events.ReplanDecision: {"mode": "finish", "reason": "why", "cause": "llm-decision"},
    events.RevisionsExceeded: {"cap": 2},
    events.BudgetExceeded: {"kind": "total", "tokens": 2, "cap": 1},
    events.FinalTextDelta: {"delta": "x"},
    events.FinalReasoningDelta: {"delta": "x"},
    events.FinalOutputDelta: {"output": {}},
    events.Final: {"text": "x"},
    events.UsageReported: {"phase": "plan", "model": "m", "usage": Usage(1)},
    events.Retry: {"phase": "execute", "step_id": "a", "attempt": 1, "error": "e", "delay": 1.0},
    events.Log: {"level": "info", "message": "m"},
    events.Error: {"phase": "plan", "message": "m", "kind": "k"},
}
BEFORE = (
    events.PlanCreated(**R, plan=PLAN),
    events.StepStart(**R, step_id="a", index=0, description="A", kind="open"),
    events.StepToolCall(**R, step_id="a", call_id="1", tool="t", name="t", arguments={}),
)


def seen(*told):
    view = View()
    for event in told:
        view.take(event)
    return view


NO_LINE = {
    events.RunStart,  # the goal is known to who typed it
    events.RunComplete,  # the last line tells it
    events.PlanThoughtDelta,  # pieces: the whole comes with the plan, the step, the answer
    events.PlanStepAdded,
    events.StepTextDelta,
    events.StepReasoningDelta,
    events.FinalTextDelta,
    events.FinalReasoningDelta,
    events.FinalOutputDelta,
    events.StepToolProgress,
    events.Final,  # goes to standard output
    events.UsageReported,  # the last line has the sum
}
"""Events of which a log of lines says nothing on purpose."""


def test_every_event_is_shown_on_a_terminal():
    assert set(TAKEN) == set(events.Event.__subclasses__())


@pytest.mark.parametrize("kind", sorted(TAKEN, key=lambda kind: kind.__name__))
def test_every_event_makes_a_line_or_deliberately_none(kind):
    view = seen(*BEFORE, kind(**R, **FIELDS[kind]), events.RunStart(**R, goal="g", agent="a"))
    assert (kind in PLAIN) + bool(view.notes) + (kind in NO_LINE) == (2 if kind is events.PlanRevised else 1)


@pytest.mark.parametrize("kind", sorted(TAKEN, key=lambda kind: kind.__name__))
def test_every_event_changes_what_is_shown(kind):
    """Each event, in a run that has a plan with a step that calls a tool."""
    view, changed = seen(*BEFORE), seen(*BEFORE, kind(**R, **FIELDS[kind]))
    for step in (*view.steps, *changed.steps):
        step.since = 0.0
    assert (changed == view) == (kind is events.FinalOutputDelta)  # its text is shown as it comes


@pytest.mark.parametrize(
    ("phase", "step_id", "said"),
    [
        ("plan", None, events.PlanThoughtDelta(**R, delta="x")),
        ("plan", None, events.PlanStepAdded(**R, index=0, id="a", description="A")),
        ("execute", None, events.FinalTextDelta(**R, delta="x")),
        ("synthesize", None, events.FinalReasoningDelta(**R, delta="x")),
        ("execute", "a", events.StepTextDelta(**R, step_id="a", delta="x")),
        ("execute", "a", events.StepReasoningDelta(**R, step_id="a", delta="x")),
    ],
)
def test_a_retry_takes_back_what_was_streamed(phase, step_id, said):
    retry = events.Retry(**R, phase=phase, step_id=step_id, attempt=1, error="e", delay=0.5)
    view = seen(said, retry)
    assert (view.thought, view.answer, view.thinking) == ("", "", "")
    assert all((step.text, step.thought) == ("", "") for step in view.steps)
    assert [step.id for step in view.steps] == ([step_id] if step_id else [])
    assert view.activity() == "Trying again in 0.5 s: e"
    view.take(events.Log(**R, level="info", message="m"))
    assert not view.retrying


def test_a_planner_that_is_asked_again_begins_anew():
    first = [events.PlanThoughtDelta(**R, delta="one"), events.PlanStepAdded(**R, index=0, id="a", description="A")]
    used = events.UsageReported(**R, phase="plan", model="m", usage=Usage(1))
    view = seen(*first, used, events.PlanThoughtDelta(**R, delta="two"))
    assert (view.thought, view.steps) == ("two", [])


def test_a_revision_keeps_what_was_done_and_replaces_what_was_not():
    view = seen(
        events.PlanCreated(**R, plan=PLAN),
        events.StepStart(**R, step_id="a", index=0, description="A", kind="open"),
        events.StepComplete(**R, step_id="a", summary="no", ok=False, blocked=True, seconds=1.0),
        events.PlanRevised(**R, plan={"thought": "", "steps": [{"id": "c", "description": "C"}]}, reason="A failed"),
    )
    assert [(step.id, step.state) for step in view.steps] == [("a", "failed"), ("c", "pending")]
    assert [note.text for note in view.notes] == ["plan revised: A failed"]


def test_plans_that_a_resume_tells_again_change_nothing():
    told = events.PlanCreated(**R, plan=PLAN)
    start = events.StepStart(**R, step_id="a", index=0, description="A", kind="open")
    view = seen(told, start, told)
    assert [(step.id, step.state) for step in view.steps] == [("a", "running"), ("b", "pending")]


def test_an_error_that_the_run_survives_is_noted_and_one_that_ends_it_is_left_to_the_end():
    error = events.Error(**R, phase="plan", message="no plan", kind="PlannerFailed")
    survived = seen(error, events.PlanCreated(**R, plan=PLAN))
    assert [note.text for note in survived.notes] == ["no plan"]
    ended = seen(error, events.RunComplete(**R, status="failed", usage=Usage(), seconds=1.0))
    assert (ended.notes, ended.error) == ([], None)
