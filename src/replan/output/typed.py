"""A Python type as the shape of a model's final output."""

import re
from typing import Any

from replan.encoding import JSON, JSONObject, encode, is_object
from replan.errors import ConfigError
from replan.model import OutputSchema

from .extract import OutputProblem, candidates
from .partial import PartialJson

_WRAPPED = "result"


class TypedOutput:
    """Turns a type (pydantic model, dataclass, TypedDict, list, union, ...) into a schema, and replies into its values.

    A type whose schema is not an object is wrapped as `{"result": ...}` on the wire, because providers want an object
    at the root.
    """

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema: JSONObject = self._adapter.json_schema()
        except (PydanticUserError, NameError, TypeError) as error:
            raise ConfigError(f"output_type {output_type!r} has no JSON schema: {error}") from None
        self._wrapped = schema.get("type") != "object"
        if self._wrapped:
            definitions = schema.pop("$defs", None)
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
            if definitions:
                schema["$defs"] = definitions
        name = getattr(output_type, "__name__", "output")
        self.schema = OutputSchema(name if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) else "output", schema)

    def read(self, text: str) -> JSON:
        """The output in a reply, validated, as JSON. Raises `OutputProblem` with the validator's words."""
        problem = "it holds no JSON"
        for candidate in candidates(text):
            try:
                self.value(self._unwrap(candidate))
            except Exception as error:  # noqa: BLE001  # a validator of the user's may raise anything
                problem = _words(error)
            else:
                return self._unwrap(candidate)
        raise OutputProblem(
            f"Your reply does not fit the required JSON schema: {problem}. Reply again with only the corrected JSON."
        )

    def value(self, output: JSON) -> Any:
        """The typed value of what `read` gave. Raises `ValueError` where it does not fit the type."""
        return self._adapter.validate_json(encode(output))

    def partial(self) -> PartialJson:
        """What reads an output while it is being written; nothing of it is validated."""
        return PartialJson(self._shown)

    def _shown(self, value: JSON) -> JSON:
        return value.get(_WRAPPED) if self._wrapped and is_object(value) else value

    def _unwrap(self, candidate: JSON) -> JSON:
        if self._wrapped and is_object(candidate) and _WRAPPED in candidate:
            return candidate[_WRAPPED]
        return candidate


def _words(error: Exception) -> str:
    details = getattr(error, "errors", None)
    if not callable(details):
        return f"{type(error).__name__}: {error}"
    rows: list[Any] = details(include_url=False, include_context=False, include_input=False)  # pyright: ignore[reportAssignmentType]  # pydantic's ValidationError
    return "; ".join(f"{'.'.join(map(str, row['loc'])) or 'the value'}: {row['msg']}" for row in rows[:8])
