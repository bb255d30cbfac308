"""What families of models behind Amazon Bedrock want otherwise than the others (user guide "Inference request
parameters and response fields for foundation models").
"""

import re
from dataclasses import dataclass

from replan.encoding import JSONObject
from replan.model import ModelProfile
from replan.models.fields import an_object

__all__ = ["Family", "effort_of", "family_of", "thinks"]

_OF_CLAUDE = ("budget", "adaptive")
_NOVA_EFFORT = {"minimal": "low", "xhigh": "high"}


@dataclass(frozen=True, slots=True)
class Family:
    """The ways of a model.

    `claude` and `nova` are told by their name; a model behind an ARN that does not name it is Claude where it thinks as
    Claude does. With `alone` it takes no text beside tool results, with `json_results` results as JSON only.
    """

    claude: bool = False
    nova: bool = False
    alone: bool = False
    json_results: bool = False
    effort: str = "reasoning_effort"

    def thinking(self, asked: JSONObject) -> JSONObject:
        """The additional fields that ask this model for what `resolve_thinking` gives."""
        effort = effort_of(asked)
        if effort is None:
            return asked
        if self.nova:
            level = _NOVA_EFFORT.get(effort, effort)
            off = {"type": "disabled"}
            return {"reasoningConfig": off if level == "none" else {"type": "enabled", "maxReasoningEffort": level}}
        return {"reasoning": {"effort": effort}} if self.effort == "reasoning" else {self.effort: effort}


_FAMILIES = {
    "anthropic": Family(claude=True),
    "amazon": Family(nova=True),
    "meta": Family(alone=True),
    "mistral": Family(alone=True, json_results=True),
    "qwen": Family(effort="reasoning_config"),
    "openai": Family(effort="reasoning"),
    "openai.gpt-oss": Family(),
    "xai": Family(effort="reasoning"),
}
_IN_ID = re.compile(r"(?:^|[./])(openai\.gpt-oss|anthropic|amazon|meta|mistral|qwen|openai|xai)[.-]")


def family_of(model: str, profile: ModelProfile) -> Family:
    """The family of a model by its id or ARN, else by its profile."""
    found = _IN_ID.search(model)
    return _FAMILIES[found[1]] if found else Family(claude=profile.thinking in _OF_CLAUDE)


def effort_of(asked: JSONObject) -> str | None:
    """The effort that is asked for in words, by models that are asked so."""
    return an_object(asked.get("reasoning")).get("effort") or asked.get("reasoning_effort")


def thinks(asked: JSONObject) -> bool:
    """Whether thinking is asked for."""
    return asked.get("thinking", {}).get("type") in ("enabled", "adaptive") or (effort_of(asked) or "none") != "none"
