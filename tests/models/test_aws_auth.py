import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest

from replan.errors import AuthError, ConfigError, MissingDependency
from replan.messages import Text, user
from replan.model import Conversation, Done, ModelRequest
from replan.models import aws_auth
from replan.models.aws_auth import AwsAuth, bedrock_base_url
from replan.models.bedrock import BedrockWire
from replan.models.http import post_stream
from replan.models.providers import resolve
from replan.models.wire import Endpoint, HttpModel
from replan.testing import HttpReply, HttpRequest, ScriptedServer

KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI-secret-key", "session-token-of-example"
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc def"
ANSWER = json.dumps(
    {"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn"}
)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No credentials but those that a test gives."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def expected_signature(request: HttpRequest, *, secret: str = SECRET, region: str = "us-east-1") -> str:
    """The signature that botocore comes to for the request as it arrived."""
    given = dict(part.split("=", 1) for part in request.headers["authorization"].split(" ", 1)[1].split(", "))
    headers = {name: request.headers[name] for name in given["SignedHeaders"].split(";")}
    url = f"http://{request.headers['host']}{request.path}"
    again = botocore.awsrequest.AWSRequest("POST", url, headers, data=request.body)
    again.context["timestamp"] = request.headers["x-amz-date"]
    credentials = botocore.credentials.Credentials(KEY, secret, request.headers.get("x-amz-security-token"))
    signer = botocore.auth.SigV4Auth(credentials, "bedrock", region)
    return signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)


def signature(request: HttpRequest) -> str:
    return request.headers["authorization"].rpartition("Signature=")[2]


async def signed(auth: AwsAuth, url: str = "http://127.0.0.1:1/model/m/converse-stream") -> dict[str, str]:
    return dict(await auth.headers(url, {"Content-Type": "application/json"}, b"{}"))


def keys(**given: str) -> AwsAuth:
    return AwsAuth(region="us-east-1", access_key_id=KEY, secret_access_key=SECRET, **given)


@pytest.mark.parametrize(
    "model", ["us.anthropic.claude-sonnet-4-5-20250929-v1:0", ARN, "amazon.nova-2-lite-v1:0", "ü~(x)+*"]
)
@pytest.mark.parametrize("token", [TOKEN, None])
async def test_the_server_comes_to_the_same_signature(model: str, token: str | None):
    async with ScriptedServer(HttpReply(chunks=(ANSWER.encode(),))) as server:
        endpoint = Endpoint(
            provider="bedrock",
            model=model,
            base_url=server.base_url.removesuffix("/v1"),
            auth=AwsAuth(region="us-east-1", access_key_id=KEY, secret_access_key=SECRET, session_token=token),
            headers={"X-Mine": "a  b"},
        )
        stream = HttpModel(endpoint, BedrockWire(endpoint)).stream(
            ModelRequest(conversation=Conversation([user("hi")]))
        )
        *_, done = [delta async for delta in stream]
        assert isinstance(done, Done)
        assert done.message.content == (Text("hi"),)
        request = server.requests[0]
        assert signature(request) == expected_signature(request)
        assert signature(request) != expected_signature(request, secret="another")
        assert request.headers.get("x-amz-security-token") == token
        assert request.path.startswith("/model/")
        assert ":" not in request.path
        assert request.path.count("/") == 3


async def test_an_address_that_is_encoded_is_sent_as_it_is():
    async with ScriptedServer(HttpReply(chunks=(b"ok",))) as server:
        pieces = post_stream(f"{server.base_url}/a%3Ab%2Fc", {}, b"{}", timeout=5, model="p:m")
        assert b"".join([piece async for piece in pieces]) == b"ok"
        assert server.requests[0].path == "/v1/a%3Ab%2Fc"


async def test_keys_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    auth = AwsAuth(region="eu-west-1")
    headers = await signed(auth)
    assert "Credential=AKIDENV/" in headers["Authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in headers["Authorization"]
    assert auth.secrets == (SECRET,)


async def test_a_profile_is_read(bare: Path):
    (bare / "credentials").write_text(f"[work]\naws_access_key_id=AKIDWORK\naws_secret_access_key={SECRET}\n")
    headers = await signed(AwsAuth(region="us-east-1", profile="work"))
    assert "Credential=AKIDWORK/" in headers["Authorization"]


async def test_an_unknown_profile_is_named():
    with pytest.raises(AuthError, match="profile 'none-such'"):
        await signed(AwsAuth(region="us-east-1", profile="none-such"))


async def test_without_credentials_the_error_says_what_to_set():
    with pytest.raises(AuthError, match="AWS_BEARER_TOKEN_BEDROCK"):
        await signed(AwsAuth(region="us-east-1"))


async def test_what_a_credential_program_prints_stays_out_of_errors(bare: Path):
    (bare / "config").write_text("[profile p]\ncredential_process = sh -c 'echo hidden-secret >&2; exit 1'\n")
    with pytest.raises(AuthError) as caught:
        await signed(AwsAuth(region="us-east-1", profile="p"))
    assert "hidden-secret" not in str(caught.value)
    assert "CredentialRetrievalError" in str(caught.value)


async def test_credentials_that_end_are_renewed_off_the_loop_and_only_then(bare: Path):
    """A program gives credentials that last an hour, after ones that end at once."""
    count = bare / "count"
    soon = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    late = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    program = bare / "program.py"
    program.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "times = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('x' * (times + 1))\n"
        f"ends = {soon!r} if times < 1 else {late!r}\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId=f'AKID{{times}}', SecretAccessKey={SECRET!r},"
        f" SessionToken={TOKEN!r}, Expiration=ends)))\n"
    )
    (bare / "config").write_text(f"[profile p]\ncredential_process = {sys.executable} {program}\n")
    auth = AwsAuth(region="us-east-1", profile="p")
    headers = [(await signed(auth))["Authorization"] for _ in range(4)]
    assert ["AKID1/" in header for header in headers[1:]] == [True, True, True]
    assert len(count.read_text()) == 2
    assert auth.secrets == (SECRET, TOKEN)


async def test_several_requests_at_once_look_for_credentials_once(monkeypatch: pytest.MonkeyPatch):
    looked: list[int] = []
    find = AwsAuth._find
    monkeypatch.setattr(AwsAuth, "_find", lambda self: looked.append(1) or find(self))
    auth = keys()
    await asyncio.gather(*(signed(auth) for _ in range(5)))
    assert looked == [1]


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(MissingDependency, match=r"pip install 'replan\[bedrock\]'"):
        keys()


def test_the_library_is_loaded_on_the_first_request_only():
    code = (
        "import sys\nfrom replan.models.aws_auth import AwsAuth\nfrom replan.models.bedrock import BedrockWire\n"
        "AwsAuth(region='us-east-1', profile='p')\nassert not any(m.startswith('botocore.') for m in sys.modules)"
    )
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("given", "named"),
    [({"access_key_id": KEY}, "AWS_SECRET_ACCESS_KEY"), ({"secret_access_key": SECRET}, "AWS_ACCESS_KEY_ID")],
)
def test_half_a_pair_of_keys_is_refused(given: dict[str, str], named: str):
    with pytest.raises(ConfigError, match=named) as caught:
        AwsAuth(region="us-east-1", **given)
    assert SECRET not in str(caught.value)


def test_nothing_secret_is_shown():
    auth = keys(session_token=TOKEN)
    assert repr(auth) == "AwsAuth(region='us-east-1', profile=None)"
    assert auth.secrets == (SECRET, TOKEN)


async def test_a_blocked_request_looks_for_no_credentials(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(aws_auth, "_botocore", None)
    with pytest.raises(ConfigError, match="blocked"):
        await signed(keys(), "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse-stream")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "bedrock-runtime.us-east-1.amazonaws.com"),
        ("us-gov-west-1", "bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "bedrock-runtime.eusc-de-east-1.amazonaws.eu"),
        ("us-iso-east-1", "bedrock-runtime.us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", "bedrock-runtime.us-isob-east-1.sc2s.sgov.gov"),
    ],
)
def test_each_region_has_its_address_as_botocore_knows_it(region: str, host: str):
    import botocore.session

    assert bedrock_base_url(region) == f"https://{host}"
    session = botocore.session.Session()
    client = session.create_client(
        "bedrock-runtime", region_name=region, aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    assert client.meta.endpoint_url == f"https://{host}"


@pytest.mark.parametrize("region", ["", "us-east", "evil.example/x-1", "us-east-1.evil"])
def test_what_is_no_region_is_refused(region: str):
    with pytest.raises(ConfigError, match="region"):
        bedrock_base_url(region)
    with pytest.raises(ConfigError, match="region"):
        AwsAuth(region=region)


async def test_a_model_string_signs_with_what_it_is_given():
    async with ScriptedServer(HttpReply(chunks=(ANSWER.encode(),))) as server:
        model = resolve(
            "bedrock:amazon.nova-2-lite-v1:0",
            base_url=server.base_url.removesuffix("/v1"),
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
        )
        async for _ in model.stream(ModelRequest(conversation=Conversation([user("hi")]))):
            pass
        assert server.requests[0].path == "/model/amazon.nova-2-lite-v1%3A0/converse-stream"
        assert signature(server.requests[0]) == expected_signature(server.requests[0])
