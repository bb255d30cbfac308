"""Which model each stage of a planning agent calls, and with which settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from . import models
from .errors import ConfigError
from .model import Model, StageModel, Stages
from .settings import ModelSettings

__all__ = ["StageCall", "resolve_stages"]


class StageCall(NamedTuple):
    """A stage's model and settings. `own` says that the model was made here, and is closed with the agent."""

    model: Model
    settings: ModelSettings
    own: bool


def resolve_stages(model: str | Model | None, stages: Stages, settings: ModelSettings) -> dict[str, StageCall]:
    """The calls of `planner`, `executor`, `replanner` and `synthesizer`. The same string with the same settings is the
    same model.

    Raises `ConfigError`, which names the stage, where a stage's model cannot be used: a model on another provider needs
    a key of its own.
    """
    known: dict[Any, Model] = {}
    if stages.replanner is not None and stages.replanner.model is not None:
        raise ConfigError("the stage 'replanner' has a model; it uses the planner's: leave the model out")
    calls = {
        name: _stage(name, model, _of(getattr(stages, name)), settings, known)
        for name in ("planner", "executor", "synthesizer")
    }
    own = _settings(calls["planner"].settings, stages.replanner or StageModel())
    return calls | {"replanner": StageCall(calls["planner"].model, own, own=False)}


def _of(given: str | Model | StageModel | None) -> StageModel:
    return given if isinstance(given, StageModel) else StageModel(model=given)


def _stage(
    name: str, model: str | Model | None, stage: StageModel, settings: ModelSettings, known: dict[Any, Model]
) -> StageCall:
    own = _settings(settings, stage)
    wanted = stage.model if stage.model is not None else model
    if wanted is not None and not isinstance(wanted, str):
        return StageCall(wanted, own, own=False)
    text = wanted if wanted is not None else models.default_model()
    key = (text, stage.base_url, stage.api_key)
    if key not in known:
        try:
            known[key] = models.resolve(text, settings=settings, base_url=stage.base_url, api_key=stage.api_key)
        except ConfigError as error:
            if stage.model is None:
                raise
            raise type(error)(f"stage {name!r}: {error}") from None
    return StageCall(known[key], own, own=True)


def _settings(settings: ModelSettings, stage: StageModel) -> ModelSettings:
    """The agent's settings with what the stage does otherwise."""
    given: Mapping[str, Any] = {
        "thinking": stage.thinking,
        "max_output_tokens": stage.max_output_tokens,
        "temperature": stage.temperature,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(settings, **changed, options=models.merge_options(settings.options, stage.options))
