"""Tools as Gemini's function declarations (reference "FunctionDeclaration" and "Schema")."""

from replan.encoding import JSON, JSONObject
from replan.model import ToolSpec
from replan.models.fields import a_list, an_object, objects
from replan.models.schemas import gemini_parameters

__all__ = ["by_json_schema", "by_own_schema"]

_KEPT = ("title", "description", "format", "minItems", "maxItems", "minimum", "maximum", "required")


def by_json_schema(tool: ToolSpec) -> JSON:
    """The tool with a JSON schema. Raises `ValueError` where nothing fulfils it."""
    return _declared(tool, "parametersJsonSchema", gemini_parameters(tool.parameters))


def by_own_schema(tool: ToolSpec) -> JSON:
    """The tool with a schema of Gemini's own, which says less: for servers that know no other."""
    parameters = gemini_parameters(tool.parameters)
    return _declared(tool, "parameters", _own(parameters) if parameters.get("properties") else {})


def _declared(tool: ToolSpec, field: str, parameters: JSONObject) -> JSONObject:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, **({field: parameters} if parameters.get("properties") else {})}


def _own(schema: JSONObject) -> JSONObject:
    """The schema in Gemini's words: one type in capitals, null beside it as `nullable`, names of texts as `enum`."""
    if "anyOf" in schema:
        return _union(schema)
    given = schema.get("type", "string")
    types = [str(each) for each in (a_list(given) or [given])]
    real = next((each for each in types if each != "null"), "string")
    found: JSONObject = {"type": real.upper(), **{word: schema[word] for word in _KEPT if word in schema}}
    if "null" in types:
        found["nullable"] = True
    if real == "string" and "enum" in schema:
        found["enum"] = [value for value in schema["enum"] if isinstance(value, str)]
    if real == "array":
        found["items"] = _own(an_object(schema.get("items")))
    if schema.get("properties"):
        found["properties"] = {name: _own(part) for name, part in schema["properties"].items()}
    return found


def _union(schema: JSONObject) -> JSONObject:
    about: JSONObject = {word: schema[word] for word in ("title", "description") if word in schema}
    branches = [branch for branch in objects(schema["anyOf"]) if branch.get("type") != "null"]
    if len(branches) < len(schema["anyOf"]):
        about["nullable"] = True
    return {**about, "anyOf": [_own(branch) for branch in branches]}
