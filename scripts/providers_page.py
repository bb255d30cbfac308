"""Writes docs/providers.md from the table of providers: what each needs, and what each supports.

python scripts/providers_page.py            write it
python scripts/providers_page.py --check    say whether it is up to date
"""

import sys
from pathlib import Path

from replan.model import ModelProfile
from replan.models import PROVIDERS, profile_for
from replan.models.connecting import Provider
from replan.models.speaking import for_wire, openai
from replan.models.wire import Endpoint

PAGE = Path(__file__).parent.parent / "docs" / "providers.md"

HEAD = """# Providers

This page is written by `scripts/providers_page.py` from the table in
[`providers.py`](../src/replan/models/providers.py); a new provider is a new row there.

A model is a string `provider:name`. No vendor's library is needed. `resolve("provider:name", base_url=..., api_key=...,
headers={...}, profile=ModelProfile(...), option=...)` from `replan.models` gives what the environment does not say.

## What each needs
"""

SUPPORT = """
## What each supports

As known of the model in the first column; what is known of a model by its name is in
[`profiles.py`](../src/replan/models/profiles.py), unknown names get careful defaults, and
`resolve(..., profile=...)` replaces it. All stream, call tools, and report usage with cached and reasoning tokens.
"""

TAIL = """
- **A provider of one's own** is a row: `PROVIDERS["mine"] = Provider(title="Mine", wire=chat, base_url="https://...",
  key_variables=("MY_KEY",), example="a-model")`, with `PROVIDERS` and `Provider` from `replan.models` and the wire
  (`chat`, `openai`, `messages`, `gemini`, `converse`) from `replan.models.speaking`.
- **Thinking**: `ModelSettings(thinking=True | "minimal" ... "xhigh" | "none" | Thinking(budget_tokens=...))`, per
  stage with `Stages(planner=StageModel(thinking=...))`. `resolve_thinking(setting, profile)` shows what is sent.
  Signed and encrypted thoughts go back unchanged to the model that had them, and to no other.
- **Prompt caching**: on by default, `ModelSettings(prompt_caching=False | PromptCaching(ttl="1h", key="..."))`. Marks
  stand behind the instructions and behind the newest message; `key` is a routing key made of the agent's name and the
  stage; `automatic` needs nothing. `resolve_prompt_caching(setting, profile)` shows what is sent.
- **Structured output**: `native` is the API's own JSON schema, `tool` a tool that the model must call, `prompted`
  words and a repair. Where a server refuses one, the next is used and that is remembered.
- **Content** that a model cannot take is put as a text that says what it is.
- **Fallback**: `Fallback("openai:...", "anthropic:...", on=(RateLimited, Overloaded))` from `replan.models`.
- **Limits of a model** hold in the whole process: `ModelSettings(max_concurrent_calls=8, max_calls_per_minute=500)`.
- **Retries**: `ModelSettings(max_retries=3, retry_delay=0.5, retry_max_delay=8, max_seconds=120, retry_if=...)`.
- **Options** of a request's body that have no name here: `ModelSettings(options={...})`, merged in last.
- **Models of other libraries**: `replan.models.pydantic_ai.from_pydantic_ai(model)`,
  `replan.models.langchain.from_langchain(model)`; tools: `replan.tools.langchain`.
"""


def page() -> str:
    """The whole page."""
    needs = [_needs(name, row) for name, row in PROVIDERS.items()]
    support = [_support(name, row) for name, row in PROVIDERS.items()]
    return "\n".join([
        HEAD,
        _table(["provider", "key", "base URL", "options", "extra", ""], needs),
        SUPPORT,
        _table(["model", "thinking", "prompt caching", "structured output", "reads", "images in results"], support),
        TAIL,
    ])  # fmt: skip


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _needs(name: str, row: Provider) -> list[str]:
    key = _variables(row.key_variables) + ("" if row.needs_key or not row.key_variables else " (if it wants one)")
    base = " ".join(filter(None, [f"`{row.base_url}`" if row.base_url else "", _variables(row.base_url_variables)]))
    options = "; ".join(f"`{option}` {_variables(names)}".strip() for option, names in row.options.items())
    extra = f"`pip install 'replan[{row.extra}]'`" if row.extra else ""
    return [f"`{name}:` {row.title}", key or "none", base, options, extra, row.quirks]


def _variables(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _support(name: str, row: Provider) -> list[str]:
    profile = profile_for(name, row.example)
    if row.wire is openai:
        url = row.base_url or f"https://example.com{'/openai/v1' if name == 'azure' else ''}"
        profile = for_wire(Endpoint(provider=name, model=row.example, base_url=url, profile=profile)).profile
    return [
        f"`{name}:{row.example}`",
        "" if profile.thinking == "none" else profile.thinking,
        profile.caching,
        profile.structured_output,
        ", ".join(["text", *_media(profile)]),
        "yes" if profile.result_images else "described",
    ]


def _media(profile: ModelProfile) -> list[str]:
    return [word for word, can in (("images", profile.images), ("PDF", profile.files), ("audio", profile.audio)) if can]


def main() -> int:
    """Write the page, or with --check compare it."""
    text = page()
    if "--check" in sys.argv:
        return 0 if PAGE.read_text("utf-8") == text else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
