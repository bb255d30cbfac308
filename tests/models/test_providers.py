import pytest

from replan.errors import ConfigError
from replan.models import default_model, resolve
from replan.settings import ModelSettings
from replan.testing import ScriptedModel, ScriptedServer

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
