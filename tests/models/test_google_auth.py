"""Google's credentials, with the real library and a token endpoint on this machine."""

import asyncio
import datetime
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.credentials import Credentials
from google.oauth2.service_account import Credentials as Account

from replan.encoding import encode
from replan.errors import AuthError, BadResponse, ConfigError, MissingDependency
from replan.models import resolve
from replan.models.google_auth import GoogleAuth, vertex_base_url
from replan.settings import ModelSettings
from replan.testing import HttpReply, ScriptedServer, error_reply

VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_VERTEX_PROJECT", "GOOGLE_CLOUD_PROJECT", "GOOGLE_VERTEX_LOCATION",
    "GOOGLE_CLOUD_LOCATION", "GCLOUD_PROJECT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def account(private_key: str, token_uri: str) -> dict[str, Any]:
    return {
        "type": "service_account",
        "project_id": "from-the-key",
        "private_key_id": "1",
        "private_key": private_key,
        "client_email": "a@b.c",
        "token_uri": token_uri,
    }


def token(value: str = "ya29.secret-token", seconds: int = 3600) -> HttpReply:
    body = encode({"access_token": value, "expires_in": seconds, "token_type": "Bearer"})
    return HttpReply(headers={"content-type": "application/json"}, chunks=(body,))


def test_a_location_is_in_the_address():
    assert vertex_base_url("p", "europe-west1") == (
        "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1"
    )
    assert vertex_base_url("p", "global") == "https://aiplatform.googleapis.com/v1/projects/p/locations/global"


async def test_a_service_account_gets_a_token_once_and_again_before_its_end(private_key: str):
    with ScriptedServer(token("first-token", 60), token("second-token")) as server:
        auth = GoogleAuth(credentials=account(private_key, server.base_url))
        assert auth.project == "from-the-key"
        sent = [await auth.headers("", {}, b"") for _ in range(3)]
    assert [each["Authorization"] for each in sent] == [
        "Bearer first-token",
        "Bearer second-token",
        "Bearer second-token",
    ]
    assert len(server.requests) == 2
    assert b"jwt-bearer" in server.requests[0].body
    assert auth.secrets == ("first-token", "second-token")
    assert "token" not in repr(auth)
    assert "PRIVATE" not in repr(auth)


async def test_a_key_file_is_found_where_the_variable_says(private_key: str, tmp_path: Path, monkeypatch):
    with ScriptedServer(token()) as server:
        path = tmp_path / "key.json"
        path.write_text(json.dumps(account(private_key, server.base_url)))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        assert (await GoogleAuth().headers("", {}, b""))["Authorization"] == "Bearer ya29.secret-token"
        model = resolve("google-vertex:gemini-2.5-flash")
    assert "projects/from-the-key/locations/global" in repr(model)
    assert "secret" not in repr(model)


async def test_a_refused_key_says_what_to_do_and_shows_no_key(private_key: str):
    with ScriptedServer(otherwise=error_reply(400, "invalid_grant")) as server:
        auth = GoogleAuth(credentials=account(private_key, server.base_url))
        with pytest.raises(AuthError, match="check the credentials") as caught:
            await auth.headers("", {}, b"")
    assert "PRIVATE" not in str(caught.value)


async def test_what_the_token_endpoint_answered_is_not_shown(private_key: str):
    odd = HttpReply(headers={"content-type": "application/json"}, chunks=(encode({"id_token": "very-secret"}),))
    with ScriptedServer(otherwise=odd) as server:
        auth = GoogleAuth(credentials=account(private_key, server.base_url))
        with pytest.raises(AuthError, match="gave no access token: No access token in response") as caught:
            await auth.headers("", {}, b"")
    assert "very-secret" not in str(caught.value)


class Counted(Credentials):
    """Credentials whose tokens are numbered and good for `seconds`; `error` is raised in place of the next ones."""

    def __init__(self, seconds: float = 3600, quota: str | None = None) -> None:
        super().__init__()
        self.seconds, self.made = seconds, 0
        self.error: Exception | None = None
        self.inside, self.most = 0, 0
        self._quota_project_id = quota

    def refresh(self, request: object) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            if self.error is not None:
                raise self.error
            self.made += 1
            self.token = f"token-number-{self.made}"
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.seconds)
            self.expiry = end.replace(tzinfo=None)
        finally:
            self.inside -= 1


async def sent(auth: GoogleAuth) -> str:
    return (await auth.headers("", {}, b""))["Authorization"].removeprefix("Bearer ")


async def test_of_many_requests_in_several_loops_one_makes_the_token():
    own = Counted()
    auth = GoogleAuth(credentials=own)
    found: list[str] = []

    def elsewhere() -> None:
        async def several() -> None:
            found.extend(await asyncio.gather(*(sent(auth) for _ in range(20))))

        asyncio.run(several())

    threads = [threading.Thread(target=elsewhere) for _ in range(3)]
    for thread in threads:
        thread.start()
    here = await asyncio.gather(*(sent(auth) for _ in range(20)))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert {*here, *found} == {"token-number-1"}
    assert (own.made, own.most) == (1, 1)


async def test_a_request_that_is_given_up_takes_no_token_from_the_others():
    auth = GoogleAuth(credentials=Counted())
    given_up = asyncio.ensure_future(sent(auth))
    other = asyncio.ensure_future(sent(auth))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await other == "token-number-1"


@pytest.mark.parametrize(("seconds", "made"), [(200, 2), (235, 1)])
async def test_a_token_is_made_anew_when_machines_give_out_another(seconds: float, made: int):
    own = Counted(seconds)
    auth = GoogleAuth(credentials=own)
    assert [await sent(auth), await sent(auth)] == ["token-number-1", f"token-number-{made}"]


async def test_a_token_that_is_still_good_is_used_where_another_is_not_to_be_had():
    own = Counted(200)
    auth = GoogleAuth(credentials=own)
    await sent(auth)
    own.error = ValueError("no network")
    assert await sent(auth) == "token-number-1"
    own.error = None
    assert await sent(auth) == "token-number-1"  # not asked for again at once
    own.expiry = datetime.datetime(2020, 1, 1)  # as google-auth has it: without a zone, in UTC
    own.error = ValueError("refused: token-number-1")
    with pytest.raises(AuthError, match=r"gcloud auth application-default login") as caught:
        await sent(auth)
    assert "token-number" not in str(caught.value)


async def test_an_end_with_a_zone_is_understood():
    own = Counted()
    own.token = "token-number-0"
    zone = datetime.timezone(datetime.timedelta(hours=5))
    own.expiry = datetime.datetime.now(zone) + datetime.timedelta(minutes=1)
    assert await sent(GoogleAuth(credentials=own)) == "token-number-1"


async def test_the_quota_of_the_project_that_the_credentials_name_counts():
    auth = GoogleAuth(credentials=Counted(quota="payer"))
    assert (await auth.headers("", {}, b""))["x-goog-user-project"] == "payer"
    assert "x-goog-user-project" not in await GoogleAuth(credentials=Counted()).headers("", {}, b"")


async def test_credentials_without_a_scope_are_given_one(private_key: str):
    with ScriptedServer(token()) as server:
        bare = Account.from_service_account_info(account(private_key, server.base_url))
        auth = GoogleAuth(credentials=bare)
        assert auth.project == "from-the-key"
        assert await sent(auth) == "ya29.secret-token"
    assert bare.requires_scopes


async def test_a_key_file_may_be_a_path(private_key: str, tmp_path: Path):
    with ScriptedServer(otherwise=token()) as server:
        path = tmp_path / "own.json"
        path.write_text(json.dumps(account(private_key, server.base_url)))
        assert [await sent(GoogleAuth(credentials=each)) for each in (path, str(path))] == ["ya29.secret-token"] * 2


def test_what_is_no_credentials_is_refused_at_once():
    with pytest.raises(ConfigError, match="credentials is a int"):
        GoogleAuth(credentials=7)


def raises() -> str:
    raise KeyError("lost")


@pytest.mark.parametrize(("source", "said"), [(raises, "KeyError"), (lambda: None, "NoneType"), (lambda: " ", "str")])
async def test_a_function_that_gives_no_token_is_an_error_that_says_so(source: Any, said: str):
    with pytest.raises(AuthError, match=said):
        await sent(GoogleAuth(access_token=source))


async def test_a_function_is_asked_each_time_and_may_take_its_time():
    threads: list[int] = []

    def slow() -> str:
        threads.append(threading.get_ident())
        return f"token-number-{len(threads)}"

    auth = GoogleAuth(access_token=slow)
    assert [await sent(auth) for _ in range(6)] == [f"token-number-{n}" for n in range(1, 7)]
    assert threading.get_ident() not in threads
    assert auth.secrets == tuple(f"token-number-{n}" for n in range(3, 7))


async def test_a_placeholder_is_no_secret():
    auth = GoogleAuth(access_token="x")
    assert await sent(auth) == "x"
    assert auth.secrets == ()


@pytest.mark.parametrize("source", ["text", "function", "async"])
async def test_a_token_needs_no_library(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.auth", None)

    async def later() -> str:
        return "given-token"

    given: Any = {"text": "given-token", "function": lambda: "given-token", "async": later}[source]
    auth = GoogleAuth(access_token=given)
    assert await auth.headers("", {}, b"") == {"Authorization": "Bearer given-token"}


def test_a_missing_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(MissingDependency, match=r"pip install 'replan\[google\]'"):
        resolve("google-vertex:gemini-2.5-flash", project="p")


@pytest.mark.parametrize("credentials", ["/no/such/file.json", {"type": "service_account"}])
def test_credentials_that_cannot_be_read_say_what_to_set(credentials: Any):
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        GoogleAuth(credentials=credentials)


def test_no_project_says_what_to_set():
    with pytest.raises(ConfigError, match="GOOGLE_VERTEX_PROJECT"):
        resolve("google-vertex:gemini-2.5-flash", access_token="given-token")


async def test_the_key_is_not_used_and_the_token_is_sent(finish):
    answer = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(answer),))
    once = ModelSettings(max_retries=0)
    async with ScriptedServer(reply, reply) as server:
        options = {"base_url": server.base_url, "api_key": "ignored", "access_token": "tok-en", "settings": once}
        assert (await finish(resolve("google-vertex:gemini-2.5-flash", **options))).message.text == "hi"
        with pytest.raises(BadResponse):
            await finish(resolve("google-vertex:claude-sonnet-4-5", **options))
    assert server.requests[0].headers["authorization"] == "Bearer tok-en"
    assert server.requests[0].path == "/v1/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert server.requests[1].path == "/v1/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict"
