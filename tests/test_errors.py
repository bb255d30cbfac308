import pickle
import re
from typing import Any

import pytest

from replan import errors
from replan.encoding import decode, encode
from replan.errors import (
    ConfigError,
    JournalBusy,
    McpError,
    MissingDependency,
    ModelError,
    RateLimited,
    ReplanError,
    RunCancelled,
    RunFailed,
)

EVERY = [getattr(errors, name) for name in errors.__all__]


def test_every_error_is_in_the_drawing_and_under_its_parent():
    drawing = errors.__doc__ or ""
    for kind in EVERY:
        assert issubclass(kind, ReplanError)
        assert re.search(rf"\b{kind.__name__}\b", drawing)
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind is not ReplanError])
def test_an_error_survives_being_stored(kind: type[ReplanError]):
    stored = decode(encode(kind("what happened").to_json()))
    again = ReplanError.from_json(stored)
    assert type(again) is kind
    assert str(again) == "what happened"
    assert again.to_json() == stored


def test_fields_are_stored_where_they_are_known():
    error = RateLimited("slow down", model="openai:x", status=429, retry_after=1.5)
    data = error.to_json()
    assert data == {
        "type": "RateLimited",
        "message": "slow down",
        "model": "openai:x",
        "status": 429,
        "retry_after": 1.5,
    }
    again = ReplanError.from_json(data)
    assert isinstance(again, RateLimited)
    assert (again.model, again.status, again.retry_after) == ("openai:x", 429, 1.5)
    assert ModelError("m").to_json() == {"type": "ModelError", "message": "m"}
    assert McpError("m", server="docs").to_json()["server"] == "docs"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"type": "KeyError", "message": "'x'"}, "KeyError: 'x'"),
        ({"type": "RunFailed", "message": "m"}, "m"),
        ({"message": "m"}, "None: m"),
    ],
)
def test_an_unknown_type_becomes_a_failed_run_that_keeps_its_text(data: dict[str, Any], message: str):
    error = ReplanError.from_json(data)
    assert type(error) is RunFailed
    assert str(error) == message
    for _ in range(3):
        error = ReplanError.from_json(error.to_json())
    assert str(error) == message


def test_parents_say_how_to_catch():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(MissingDependency, ConfigError)
    assert issubclass(JournalBusy, errors.JournalError)
    assert not issubclass(RunCancelled, RunFailed)
    assert RunFailed("x").result is None


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(RateLimited("m", model="a:b", retry_after=2)))
    assert (type(error), str(error), error.model, error.retry_after) == (RateLimited, "m", "a:b", 2)
