import subprocess
import sys
from pathlib import Path

import pytest

from replan import Agent
from replan.encoding import encode
from replan.errors import AuthError, ConfigError, MissingDependency, ReplanError
from replan.model import ModelProfile
from replan.models import PROVIDERS, Provider, default_model, resolve
from replan.models.connecting import Given
from replan.models.speaking import chat
from replan.settings import ModelSettings
from replan.testing import HttpReply, ScriptedModel, ScriptedServer, error_reply

VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_COMPATIBLE_BASE_URL",
    "OPENAI_COMPATIBLE_API_KEY",
    "REPLAN_MODEL",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_model_is_given_back():
    model = ScriptedModel()
    assert resolve(model) is model


def test_openai_needs_a_key_and_says_where_it_goes():
    with pytest.raises(ConfigError, match=r"'openai:gpt-4\.1' needs an API key; set OPENAI_API_KEY"):
        resolve("openai:gpt-4.1")
    assert resolve("openai:gpt-4.1", api_key="k").name == "openai:gpt-4.1"


@pytest.mark.parametrize("value", ["", "  \n"])
def test_a_blank_variable_is_a_missing_one(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        resolve("openai:gpt-4.1")


def test_a_key_with_a_line_break_inside_is_refused_without_showing_it():
    with pytest.raises(ConfigError, match="line break") as caught:
        resolve("openai:m", api_key="sk-first\nsk-second")
    assert "sk-" not in str(caught.value)


def test_a_compatible_service_needs_a_base_url_and_no_key(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="needs a base URL; set OPENAI_COMPATIBLE_BASE_URL, or give base_url="):
        resolve("openai-compatible:llama")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://localhost:8000/v1/")
    assert "base_url='http://localhost:8000/v1'" in repr(resolve("openai-compatible:llama3:8b"))
    assert resolve("openai-compatible:llama3:8b").name == "openai-compatible:llama3:8b"


@pytest.mark.parametrize(
    "url",
    ["localhost:8000/v1", "ftp://x/v1", "api.example.com", "http://", "//x", "http://h:port/v1", "http://[::1/v1"],
)
def test_a_base_url_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigError, match="base URL"):
        resolve("openai-compatible:m", base_url=url)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt-4.1", "names no provider; write 'provider:name'"),
        ("", "names no provider"),
        ("openai:", "names no model"),
        ("openai: ", "names no model"),
        (":x", "unknown provider"),
        ("opnai:gpt-4.1", "did you mean 'openai:'"),
        ("OpenAI:gpt-4.1", "did you mean 'openai:'"),
        ("nobody:x", "openai-compatible:name"),
        ("openai", "names no provider"),
    ],
)
def test_what_is_no_model_string_says_what_to_write(model: str, words: str):
    with pytest.raises(ConfigError, match=words) as caught:
        resolve(model, api_key="k")
    assert repr(model) in str(caught.value)


async def test_environment_and_settings_reach_the_request(monkeypatch: pytest.MonkeyPatch, finish):
    async with ScriptedServer("ok") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", " from-the-environment\n")
        await finish(resolve("openai:gpt-4.1-mini", settings=ModelSettings(temperature=0.5)))
    assert server.requests[0].headers["authorization"] == "Bearer from-the-environment"
    assert server.requests[0].json["temperature"] == 0.5
    assert server.requests[0].json["model"] == "gpt-4.1-mini"


async def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch, finish):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    async with ScriptedServer("ok") as server:
        await finish(resolve("openai:x", base_url=f"{server.base_url}/chat/completions", api_key="given"))
    assert server.requests[0].headers["authorization"] == "Bearer given"
    assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("name", "window", "schema"),
    [
        ("gpt-4.1-mini", 1_047_576, True),
        ("gpt-4o-2024-08-06", 128_000, True),
        ("gpt-4", 8_192, False),
        ("gpt-4-turbo-preview", 128_000, False),
        ("gpt-5.1", 400_000, True),
        ("o3-mini", 200_000, True),
        ("of-tomorrow", 128_000, True),
    ],
)
def test_what_is_known_of_openais_models(name: str, window: int, schema: bool):
    profile = resolve(f"openai:{name}", api_key="k").profile
    assert (profile.context_window, profile.structured_output == "native") == (window, schema)


def test_the_default_model(monkeypatch: pytest.MonkeyPatch):
    assert default_model() == "local:qwen2.5-coder-1.5b"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert default_model() == "openai:gpt-4.1-mini"
    monkeypatch.setenv("REPLAN_MODEL", " openai-compatible:x ")
    assert default_model() == "openai-compatible:x"


# ---- every provider

SECRET = "sk-very-secret-key-4711"
NEEDS: dict[str, dict[str, str]] = {
    "azure": {"base_url": "https://mine.example.com"},
    "bedrock": {"region": "eu-west-1"},
    "cloudflare": {"account_id": "acc"},
    "google-vertex": {"project": "p", "access_token": SECRET},
    "openai-compatible": {"base_url": "https://a.b/v1"},
}
EVERY = sorted(PROVIDERS)


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch):
    for row in PROVIDERS.values():
        for names in (row.base_url_variables, row.key_variables, *row.options.values()):
            for name in names:
                monkeypatch.delenv(name, raising=False)


def test_there_is_a_row_for_each_of_the_eleven_providers():
    assert set(PROVIDERS) == {
        "openai", "anthropic", "google", "openai-compatible", "xai", "azure", "bedrock", "google-vertex", "deepseek",
        "gateway", "cloudflare",
    }  # fmt: skip
    assert resolve("amazon-bedrock:m", region="eu-west-1", api_key="k").name == "bedrock:m"


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("provider", EVERY)
def test_a_provider_is_reached_with_what_it_needs_and_shows_no_key(provider: str):
    model = resolve(f"{provider}:{PROVIDERS[provider].example}", api_key=SECRET, **NEEDS.get(provider, {}))
    assert model.name == f"{provider}:{PROVIDERS[provider].example}"
    assert SECRET not in repr(model)
    assert SECRET not in repr(vars(model))
    assert model.profile.context_window >= 8_000


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("provider", [name for name in EVERY if PROVIDERS[name].needs_key and name != "bedrock"])
def test_a_missing_key_names_the_variable(provider: str):
    with pytest.raises(ConfigError, match=PROVIDERS[provider].key_variables[0]):
        resolve(f"{provider}:m", **NEEDS.get(provider, {}))


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("azure", "AZURE_OPENAI_ENDPOINT"),
        ("openai-compatible", "OPENAI_COMPATIBLE_BASE_URL"),
        ("cloudflare", "CLOUDFLARE_ACCOUNT_ID"),
        ("bedrock", "AWS_REGION"),
    ],
)
def test_what_else_is_missing_names_its_variable(provider: str, variable: str):
    with pytest.raises(ConfigError, match=variable):
        resolve(f"{provider}:m", api_key=SECRET)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("provider", EVERY)
def test_an_unknown_option_says_which_there_are(provider: str):
    with pytest.raises(ConfigError, match="'nonsense'"):
        resolve(f"{provider}:m", api_key=SECRET, nonsense=1, **NEEDS.get(provider, {}))


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("options", "path", "header"),
    [
        ({}, "/openai/v1/chat/completions", "api-key"),
        ({"api_version": "2024-10-21"}, "/openai/deployments/m/chat/completions?api-version=2024-10-21", "api-key"),
        (
            {"api_version": "2024-10-21", "deployment": "d"},
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "api-key",
        ),
    ],
)
async def test_azure_is_asked_where_its_version_says(finish, options: dict, path: str, header: str):
    async with ScriptedServer("ok") as server:
        base = server.base_url.removesuffix("/v1")
        await finish(resolve("azure:m", base_url=base, api_key=SECRET, responses="never", **options))
    assert (server.requests[0].path, server.requests[0].headers[header]) == (path, SECRET)


@pytest.mark.usefixtures("no_variables")
async def test_azure_takes_the_address_of_a_deployment_and_a_token(finish):
    async with ScriptedServer("ok") as server:
        base = f"{server.base_url.removesuffix('/v1')}/openai/deployments/d?api-version=1"
        await finish(resolve("azure:m", base_url=base, access_token=SECRET, responses="never"))
    assert server.requests[0].path == "/openai/deployments/d/chat/completions?api-version=1"
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("provider", "header", "value"),
    [
        ("anthropic", "x-api-key", SECRET),
        ("google", "x-goog-api-key", SECRET),
        ("xai", "authorization", f"Bearer {SECRET}"),
        ("deepseek", "authorization", f"Bearer {SECRET}"),
        ("gateway", "authorization", f"Bearer {SECRET}"),
        ("cloudflare", "authorization", f"Bearer {SECRET}"),
        ("bedrock", "authorization", f"Bearer {SECRET}"),
    ],
)
async def test_the_key_is_sent_and_no_error_shows_it(finish, provider: str, header: str, value: str):
    refused = error_reply(401, f"bad key {SECRET}")
    async with ScriptedServer(refused) as server:
        options = {**NEEDS.get(provider, {}), "base_url": server.base_url}
        with pytest.raises(AuthError) as caught:
            await finish(resolve(f"{provider}:m", api_key=SECRET, **options))
    assert server.requests[0].headers[header] == value
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.to_json())


@pytest.mark.usefixtures("no_variables")
async def test_organisation_project_and_own_headers_are_sent(finish):
    async with ScriptedServer("ok") as server:
        options = {"organization": "o", "project": "p", "headers": {"X-Mine": "1"}}
        await finish(resolve("openai:gpt-4.1", api_key=SECRET, base_url=server.base_url, **options))
    headers = server.requests[0].headers
    assert (headers["openai-organization"], headers["openai-project"], headers["x-mine"]) == ("o", "p", "1")


@pytest.mark.usefixtures("no_variables")
async def test_secret_headers_are_not_shown(finish):
    async with ScriptedServer(error_reply(401, "token hidden-token-4711 is wrong")) as server:
        headers = {"X-Auth-Token": "hidden-token-4711"}
        with pytest.raises(AuthError, match=r"token \[key\] is wrong"):
            await finish(resolve("openai-compatible:m", base_url=server.base_url, headers=headers))


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("model", "options", "path"),
    [
        ("openai:gpt-5-mini", {"responses": "always"}, "/v1/responses"),
        ("openai:gpt-5-mini", {"responses": "never"}, "/v1/chat/completions"),
        ("openai:gpt-5-mini", {}, "/v1/chat/completions"),  # at another base URL
        ("gateway:openai/gpt-5-mini", {"responses": "always"}, "/v1/responses"),
    ],
)
async def test_the_responses_api_is_asked_where_it_is_wanted(finish, model: str, options: dict, path: str):
    ok = {"object": "response", "status": "completed", "output": [{"type": "message", "content": [{"text": "ok"}]}]}
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(ok),))
    async with ScriptedServer(reply if "responses" in path else "ok") as server:
        await finish(resolve(model, api_key=SECRET, base_url=server.base_url, **options))
    assert server.requests[0].path == path


@pytest.mark.usefixtures("no_variables")
def test_at_openai_itself_models_that_think_are_asked_through_responses():
    def style(name: str, **options: str) -> str:
        return resolve(f"openai:{name}", api_key=SECRET, **options).profile.thinking

    assert (style("gpt-5-mini"), style("gpt-5-mini", responses="never"), style("gpt-4.1")) == (
        "reasoning",
        "effort",
        "none",
    )
    with pytest.raises(ConfigError, match="'sometimes'"):
        resolve("openai:gpt-5", api_key=SECRET, responses="sometimes")


@pytest.mark.usefixtures("no_variables")
def test_a_profile_of_ones_own_is_used():
    own = ModelProfile(context_window=9_999)
    assert resolve("deepseek:m", api_key=SECRET, profile=own).profile.context_window == 9_999


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("ANTHROPIC_API_KEY", "anthropic:"),
        ("GEMINI_API_KEY", "google:"),
        ("XAI_API_KEY", "xai:"),
        ("DEEPSEEK_API_KEY", "deepseek:"),
    ],
)
def test_a_key_alone_says_which_model_to_use(monkeypatch: pytest.MonkeyPatch, variable: str, model: str):
    monkeypatch.setenv(variable, "k")
    assert default_model().startswith(model)


@pytest.mark.parametrize(("library", "model", "command"), [("botocore", "bedrock:m", r"replan\[bedrock\]")])
@pytest.mark.usefixtures("no_variables")
def test_a_missing_library_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, library: str, model: str, command: str
):
    for name in list(sys.modules):
        if name == library or name.startswith(f"{library}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependency, match=f"pip install '{command}'"):
        resolve(model, region="eu-west-1")
    assert resolve(model, region="eu-west-1", api_key="a-bearer-key").name == "bedrock:m"


def test_the_page_of_providers_is_that_of_the_table():
    page = Path(__file__).parents[2] / "scripts" / "providers_page.py"
    assert subprocess.run([sys.executable, str(page), "--check"], check=False).returncode == 0


async def test_no_key_is_in_events_journal_or_errors_of_a_run(tmp_path: Path):
    told: list[str] = []
    async with ScriptedServer(error_reply(500, f"oops {SECRET}"), "ok", error_reply(400, f"no {SECRET}")) as server:
        settings = ModelSettings(retry_delay=0)
        model = resolve("openai-compatible:m", base_url=server.base_url, api_key=SECRET, settings=settings)
        journal = tmp_path / "runs.db"
        async with Agent(model, journal=journal, on_event=lambda event: told.append(repr(event))) as agent:
            await agent.run("x")
            with pytest.raises(ReplanError) as caught:
                await agent.run("x")
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert SECRET not in "".join(told)
    assert SECRET.encode() not in stored
    assert SECRET not in str(caught.value)


async def test_a_provider_of_ones_own_is_a_row(monkeypatch: pytest.MonkeyPatch, finish):
    async with ScriptedServer("ok") as server:
        row = Provider(title="Mine", wire=chat, base_url=server.base_url, key_variables=("MY_KEY",), example="a")
        monkeypatch.setitem(PROVIDERS, "mine", row)
        with pytest.raises(ConfigError, match="MY_KEY"):
            resolve("mine:a")
        monkeypatch.setenv("MY_KEY", "my-own-key")
        assert (await finish(resolve("mine:a"))).message.text == "ok"
    assert server.requests[0].headers["authorization"] == "Bearer my-own-key"


def test_a_password_in_an_address_is_not_shown():
    model = resolve("openai-compatible:m", base_url="https://me:hidden-password@example.com/v1?key=hidden-key")
    assert repr(model) == "HttpModel('openai-compatible:m', base_url='https://example.com/v1')"


def test_what_is_given_shows_no_key():
    given = Given("a:b", "a", "b", "https://a.b", SECRET, {"secret_access_key": SECRET})
    assert SECRET not in repr(given)
