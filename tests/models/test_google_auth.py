"""Google's credentials, with the real library and a token endpoint on this machine."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

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
    assert auth.secrets == ("second-token",)
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
