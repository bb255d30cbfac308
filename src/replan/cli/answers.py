"""What can be answered to an inbox item, and in which words."""

from pathlib import Path
from typing import Any

import msgspec

from replan.encoding import JSON, JSONObject, clean_text, decode, is_object
from replan.errors import ConfigError
from replan.journal import InboxItem

__all__ = ["WORDS", "describe_words", "make_answer", "read_plan", "read_plan_file"]

WORDS = {
    "plan-review": {"accept": "", "edit": "plan", "reject": "reason"},
    "approval": {"allow": "", "deny": "reason"},
    "in-doubt": {"done": "result", "not-done": ""},
}
"""The words that answer the items of each name, each with the option that it takes."""

_DONE = "Done, as a person has confirmed; what it gave is not known."


def describe_words(name: str) -> str:
    """The words for items of that name, as one would type them."""
    usages = {"": "", "plan": " --plan FILE", "reason": " [--reason TEXT]", "result": " [--result TEXT]"}
    return " | ".join(word + usages[option] for word, option in WORDS.get(name, {}).items()) or "JSON"


def make_answer(item: InboxItem, word: str, options: dict[str, Any]) -> JSON:
    """The answer that a word and its options (`reason`, `plan` as JSON, `result`) mean for an item.

    Raises `ConfigError` where they do not fit the item.
    """
    words = WORDS.get(item.name, {})
    given = {name: value for name, value in options.items() if value is not None}
    if word not in words:
        if given or word in {known for others in WORDS.values() for known in others}:
            raise ConfigError(f"{item.key!r} is of the kind {item.name!r}; answer it with {describe_words(item.name)}")
        return _json(item, word)
    if wrong := given.keys() - {words[word]}:
        raise ConfigError(f"{word!r} takes no --{min(wrong)}")
    if word == "edit" and "plan" not in given:
        raise ConfigError("'edit' needs the plan: --plan FILE; `replan inbox --json` gives the one that is asked about")
    if word == "done":
        return {"outcome": word, "result": str(given.get("result") or "").strip() or _DONE}
    return {"outcome" if item.name == "in-doubt" else "decision": word, **given}


def read_plan(text: str) -> JSONObject:
    """A plan that a person wrote, as YAML or JSON. Raises `ConfigError` that says where it is wrong."""
    from replan.planning.files import load_plan, unknown_fields
    from replan.planning.plan import Step

    data = load_plan(text)
    data.pop("goal", None)
    if wrong := unknown_fields(data):
        raise ConfigError(f"the plan has unknown fields: {', '.join(wrong)}; correct or remove them")
    if not data["steps"]:
        raise ConfigError("the plan has no steps; reject it if nothing is to be done")
    for number, step in enumerate(data["steps"]):
        if not is_object(step):
            raise ConfigError(f"steps[{number}] is no step; write it as fields, `- id: ...` with a `description`")
        try:
            msgspec.convert({"id": "s1", "description": "", **step}, Step)
        except msgspec.ValidationError as error:
            raise ConfigError(f"steps[{number}] cannot be used: {error}") from error
    return data


def read_plan_file(path: str) -> JSONObject:
    """The plan in a file. Raises `ConfigError`."""
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the plan {path!r} cannot be read: {error}") from error
    return read_plan(text)


def _json(item: InboxItem, text: str) -> JSON:
    try:
        return decode(clean_text(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no answer; say {describe_words(item.name)}, or give JSON") from error
