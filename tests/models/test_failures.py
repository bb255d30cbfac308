import json
from email.utils import formatdate

import pytest

from replan.errors import AuthError, BadRequest, BadResponse, ContextTooLong, ModelTimeout, Overloaded, RateLimited
from replan.models.failures import MAX_RETRY_AFTER, Failure, answer_failure, retry_after


def failed(status: int, body: object = b"", headers: dict[str, str] | None = None, **more: object) -> Failure:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer_failure(status, headers or {}, data, model="p:m", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "own words"}}, "own words"),
        ({"error": "own words"}, "own words"),
        ({"message": "own words"}, "own words"),
        ({"detail": "own words"}, "own words"),
        ({"detail": [{"loc": ["body", "x"], "msg": "own words"}]}, "body.x: own words"),
        ({"error": {"error": {"message": "own words"}}}, "own words"),
        ([{"error": {"message": "own words"}}], "own words"),
        ({"errors": [{"message": "own"}, {"message": "words"}]}, "own; words"),
        (b"own words, plain", "own words, plain"),
        (b"<html><title>Own words</title><body>x</body></html>", "Own words"),
        (b"<!DOCTYPE html><style>p{}</style><body><h1>Own</h1> <p>words</p></body>", "Own words"),
        (b"", "no text"),
        (b"\xff\xfe", "\ufffd"),
    ],
)
def test_the_providers_own_words_are_in_the_error(body: object, words: str):
    assert words in str(failed(400, body).error)


@pytest.mark.parametrize(
    ("status", "error", "repeat"),
    [
        (400, BadRequest, False),
        (401, AuthError, False),
        (402, BadRequest, False),
        (403, AuthError, False),
        (404, BadRequest, False),
        (405, BadRequest, False),
        (408, ModelTimeout, True),
        (409, Overloaded, True),
        (413, ContextTooLong, False),
        (429, RateLimited, True),
        (500, Overloaded, True),
        (501, Overloaded, False),
        (502, Overloaded, True),
        (504, Overloaded, True),
        (529, Overloaded, True),
    ],
)
def test_status_decides_the_class_and_whether_to_repeat(status: int, error: type, repeat: bool):
    failure = failed(status, {"error": {"message": "x"}})
    assert (type(failure.error), failure.repeat, failure.error.status) == (error, repeat, status)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000"}},
        ),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        (400, {"error": {"message": "Input is too long for requested model."}}),
        (400, {"error": {"message": "The input token count (1050000) exceeds the maximum number of tokens allowed"}}),
        (
            400,
            {
                "error": {
                    "type": "exceed_context_size_error",
                    "message": "the request exceeds the available context size",
                }
            },
        ),
        (422, {"detail": "Please reduce the length of the messages"}),
        (429, {"error": {"message": "Request too large for m on tokens per min: Limit 30000, Requested 50000"}}),
        (500, {"error": {"message": "the prompt is larger than the context window"}}),
    ],
)
def test_a_request_that_is_too_long_is_recognised(status: int, body: dict):
    failure = failed(status, body)
    assert isinstance(failure.error, ContextTooLong)
    assert not failure.repeat


@pytest.mark.parametrize(
    "words", ["max_tokens is too large: 100000", "invalid model", "messages: array too short", "the context is missing"]
)
def test_other_complaints_are_not_taken_for_length(words: str):
    assert type(failed(400, {"error": {"message": words}}).error) is BadRequest


def test_a_used_up_quota_is_not_waited_for():
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    failure = failed(429, body)
    assert isinstance(failure.error, RateLimited)
    assert not failure.repeat


def test_a_web_page_with_a_client_error_is_a_bad_response_with_a_hint():
    failure = failed(404, b"<html><title>Not Found</title></html>")
    assert isinstance(failure.error, BadResponse)
    assert "base URL" in str(failure.error)


def test_secrets_are_blackened_in_message_and_text():
    failure = failed(400, {"error": {"message": "key sk-12345678 is bad"}}, secrets=["sk-12345678"])
    assert "sk-12345678" not in str(failure.error) + failure.text


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_provider_asks_for(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_a_date_in_the_future_is_a_wait_until_then():
    import time

    wait = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert wait is not None
    assert 25 < wait <= 30


def test_a_long_wait_is_capped_and_told():
    failure = failed(429, b"", {"retry-after": "3600"})
    assert failure.wait == MAX_RETRY_AFTER
    assert failure.error.retry_after == 3600


@pytest.mark.parametrize(
    ("status", "body", "kind", "repeat"),
    [
        (429, {"message": "Too many tokens, please wait before trying again."}, RateLimited, True),
        (
            400,
            {"message": "Input Tokens Exceeded: Number of input tokens exceeds maximum length"},
            ContextTooLong,
            False,
        ),
        (400, {"message": "input length and `max_tokens` exceed context limit: 1 + 2 > 2"}, ContextTooLong, False),
        (424, {"message": "The model returned an error."}, Overloaded, True),
        (403, {"Message": "User x is not authorized"}, AuthError, False),
    ],
)
def test_failures_of_bedrock_are_sorted(status: int, body: dict, kind: type, repeat: bool):
    failure = failed(status, body)
    assert (type(failure.error), failure.repeat) == (kind, repeat)
    assert next(iter(body.values()))[:20] in str(failure.error)
