"""Computations as a small form that a model fills in field by field: what is worked out, of which values.

A form cannot leave out a value that was looked up, mix fields that do not belong together or invent a number.
"""

import re
from collections.abc import Sequence

from replan.encoding import JSON, JSONObject, is_object

from .compute import open_operand
from .words import numbers

__all__ = ["FORMS", "NOTHING", "formula_schema", "formula_spec", "is_form", "is_idle"]

FORMS: dict[str, JSONObject] = {
    "highest": {"max": None},
    "lowest": {"min": None},
    "ascending order": {"sort": None, "order": "ascending"},
    "descending order": {"sort": None, "order": "descending"},
    "average": {"average": None},
    "count": {"count": None},
    "sum": {"value": None},
    "difference": {"value": None},
    "product": {"value": None},
    "quotient": {"value": None},
}
"""What a form may work out, and what computation that is."""

NOTHING = "nothing"
"""What a form says where the goal asks for no more than the values themselves: the operand stays open."""

_OPEN = ("value", "sum")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent\b)", re.I)
_SMALL = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORDS: dict[str, float] = {
    **{word: n for n, word in enumerate(_SMALL, 2)},
    "half": 0.5,
    "twice": 2,
    "double": 2,
    "triple": 3,
    "dozen": 12,
}
_TIME = re.compile(r"\d{4}-\d\d|\d{1,2}:\d\d")
_NAMED = re.compile(r"\b\d{1,2}:\d\d\b|\b\d{4}-\d\d(?:-\d\d)?\b|\b[A-Z][\w-]* \d+\b")
_SIGNS = {"times": "*", "divided by": "/", "minus": "-"}
_MAX_NUMBERS = 6


def is_form(found: JSONObject) -> bool:
    """Whether a reply is a filled-in form rather than a computation."""
    return "how" in found or "field" in found


def formula_schema(spec: JSONObject, values: Sequence[JSONObject], goal: str) -> JSONObject:
    """The JSON schema of the form for a computation whose operand is open."""
    kind = open_operand(spec)
    if kind in _OPEN:
        return _arithmetic(values, goal)
    form: JSONObject = {"field": {"enum": _fields(values if kind == "count" else _comparable(values))}}
    if kind in ("sort", "rank") and "order" not in spec:
        form["order"] = {"enum": ["ascending", "descending"]}
    if kind == "filter" and "where" not in spec:
        form |= {"is": {"enum": ["<", "<=", ">", ">=", "=="]}, "than": {"enum": numbers(goal) or [0]}}
    return _closed(form)


def is_idle(spec: JSONObject, values: Sequence[JSONObject], goal: str) -> bool:
    """Whether there is nothing that could be worked out from the values."""
    return not values or (open_operand(spec) in _OPEN and not _forms(values, goal))


def _numeric(values: Sequence[JSONObject]) -> list[JSONObject]:
    return [v for v in values if not isinstance(v["value"], str)]


def _comparable(values: Sequence[JSONObject]) -> list[JSONObject]:
    """Numbers, dates and times; where there are none, all."""
    return [v for v in values if not isinstance(v["value"], str) or _TIME.match(v["value"])] or list(values)


def _fields(values: Sequence[JSONObject]) -> list[str]:
    """The names of fields of which there are most values."""
    counts: dict[str, int] = {}
    for item in values:
        counts[item["name"]] = counts.get(item["name"], 0) + 1
    most = max(counts.values(), default=0)
    return [name for name, count in counts.items() if count == most]


def _arithmetic(values: Sequence[JSONObject], goal: str) -> JSONObject:
    return {"anyOf": _forms(values, goal) or [_closed({"how": {"const": NOTHING}})]}


def _forms(values: Sequence[JSONObject], goal: str) -> list[JSONObject]:
    compared, numeric = _comparable(values), _numeric(values)
    forms: list[JSONObject] = []
    fields = _fields(compared)
    if fields and sum(v["name"] == fields[0] for v in compared) > 1:
        hows = [how for how, found in FORMS.items() if "value" not in found]
        forms.append(_closed({"how": {"enum": hows}, "field": {"enum": fields}}))
    forms += _totals(numeric, goal) if numeric else []
    return forms


def _totals(values: Sequence[JSONObject], goal: str) -> list[JSONObject]:
    """The forms of expressions, in which each step whose result has numbers takes part."""
    owners: dict[str, list[str]] = {}
    for item in values:
        names = owners.setdefault(item["step"], [])
        if item["name"] not in names:
            names.append(item["name"])
    keys = _owner_keys(values)
    times = {step: _multiple(goal, keys[step]) for step in owners}
    for owner in keys.values():
        goal = re.sub(re.escape(owner), " ", goal, flags=re.I)
    changes = _changes(goal, [n for n in times.values() if n != 1])
    more: JSONObject = {"then": {"enum": [NOTHING, *changes]}} if changes else {}
    each = _closed({keys[step]: {"const": n} for step, n in times.items()})
    common = [name for name in next(iter(owners.values())) if all(name in names for names in owners.values())]
    forms: list[JSONObject] = []
    listed = len(values) > sum(map(len, owners.values()))
    if common and (len(owners) > 1 or listed or changes or set(times.values()) != {1}):
        hows = ["sum", "difference"] if len(owners) > 1 else ["sum"]
        forms.append(_closed({"how": {"enum": hows}, "field": {"enum": common}, "times": each, **more}))
    if len(owners) > 1 and (not common or any(names == ["result"] for names in owners.values())):
        use = _closed({keys[step]: {"enum": _in_unit(names, step, keys)} for step, names in owners.items()})
        hows = _rated(owners, keys) or ["product", "quotient"]
        forms.append(_closed({"how": {"enum": hows}, "use": use, "times": each, **more}))
    return forms


def _rated(owners: dict[str, list[str]], keys: dict[str, str]) -> list[str]:
    """What is done with a rate (a bare number that two units were given for): times where it is from the unit of the
    other values, divided where it is to it; empty where there is none.
    """
    words = {name.casefold() for names in owners.values() for field in names for name in field.split("_")}
    for step, names in owners.items():
        units = [unit.casefold() for unit in keys[step].split(", ")]
        known = [unit in words for unit in units]
        if names == ["result"] and len(units) == 2 and any(known):
            return ["product"] if known[0] else ["quotient"]
    return []


def _in_unit(names: list[str], step: str, keys: dict[str, str]) -> list[str]:
    """The fields that are in a unit that another step is about, as `price_eur` is for a rate from EUR; else all."""
    others = {word for other, key in keys.items() if other != step for word in re.findall(r"[a-z]+", key.casefold())}
    return [name for name in names if others.intersection(name.casefold().split("_"))] or names


def _multiple(goal: str, owner: str) -> float:
    """How many of something a goal speaks of: the number before its name; 1 where there is none."""
    first = re.escape(owner.split(maxsplit=1)[0])
    match = re.search(
        rf"(?<![\w.,])(\d+(?:\.\d+)?|{'|'.join(_WORDS)})\s+(?:(?:[a-z]+\s+)?of\s+(?:the\s+)?|x\s+)?{first}", goal, re.I
    )
    if not match:
        return 1
    return _WORDS.get(match[1].casefold()) or next(iter(numbers(match[1])), 1)


def _owner_keys(values: Sequence[JSONObject]) -> dict[str, str]:
    """What each step is called in the form: its owner, with the id where two are called the same."""
    keys: dict[str, str] = {}
    for item in values:
        taken = [key for step, key in keys.items() if step != item["step"]]
        owner = item["owner"]
        keys.setdefault(item["step"], f"{owner} ({item['step']})" if owner in taken else owner)
    return keys


def _factors(goal: str) -> list[float]:
    """The numbers that a goal has, in digits or words, percentages excepted."""
    plain = _NAMED.sub(" ", _PERCENT.sub(" ", goal))
    words = [_WORDS[word] for word in re.findall(r"[a-z]+", plain.casefold()) if word in _WORDS]
    return list(dict.fromkeys(n for n in [*numbers(plain), *words] if n not in (0, 1)))[:_MAX_NUMBERS]


def _changes(goal: str, taken: Sequence[float]) -> list[str]:
    """What may be done with a total: with the percentages of the goal, else its numbers that are not `taken`."""
    percents = list(dict.fromkeys(_PERCENT.findall(goal)))[:2]
    if percents:
        return [text for p in percents for text in (f"{p}% less", f"{p}% more", f"only {p}%")]
    left = [n for n in _factors(goal) if n not in taken]
    return [text for n in left for text in (f"times {n}", f"divided by {n}", f"minus {n}", f"{n} minus it")]


def formula_spec(form: JSONObject, spec: JSONObject, values: Sequence[JSONObject]) -> JSONObject | None:
    """The computation that a filled-in form stands for, an open one where it says `NOTHING`; None where it is none."""
    if form.get("how") == NOTHING:
        return spec
    found = FORMS.get(form.get("how", "sum"), spec) if open_operand(spec) in _OPEN else spec
    kind = open_operand(found)
    if kind in _OPEN:
        return _from_terms(form, _numeric(values))
    chosen = values if kind == "count" else _numeric(values) if kind == "average" else _comparable(values)
    refs = [v["ref"] for v in chosen if v["name"] == form.get("field")]
    if not refs or kind is None:
        return None
    if kind in ("max", "min") and len(refs) > 2:  # the order says which is first, and all that a goal may ask besides
        kind, found = "sort", {"order": "descending" if kind == "max" else "ascending"}
    order = form.get("order", found.get("order"))
    filled: JSONObject = {kind: refs, **({"order": order} if order else {})}
    return {**filled, "where": {"is": form.get("is"), "than": form.get("than")}} if "is" in form else filled


def _from_terms(form: JSONObject, values: Sequence[JSONObject]) -> JSONObject | None:
    keys, use, times = _owner_keys(values), form.get("use"), form.get("times", 1)
    terms: list[str] = []
    for step, key in keys.items():
        field = form.get("field") or (use.get(key) if is_object(use) else None)
        refs = [v["ref"] for v in values if v["step"] == step and v["name"] == field]
        if not refs:
            return None
        term = refs[0] if len(refs) == 1 else f"sum([{', '.join(refs)}])"
        count = times.get(key, 1) if is_object(times) else 1
        terms.append(term if count == 1 else f"{count} * {term}")
    how = form.get("how")
    whole = {"product": " * ", "quotient": " / ", "difference": " - "}.get(str(how), " + ").join(terms)
    whole = f"abs({whole})" if how == "difference" else whole
    return {"value": _changed(whole, form.get("then"), single=len(terms) == 1)}


def _changed(whole: str, change: JSON, *, single: bool) -> str:
    inner = whole if single else f"({whole})"
    if not isinstance(change, str) or change == NOTHING:
        return whole
    if match := re.fullmatch(r"(\S+)% (less|more)", change):
        return f"{inner} * (1 {'-' if match[2] == 'less' else '+'} {match[1]}%)"
    if match := re.fullmatch(r"only (\S+)%", change):
        return f"{inner} * {match[1]}%"
    if match := re.fullmatch(r"(\S+) minus it", change):
        return f"{match[1]} - {inner}"
    match = re.fullmatch(r"(times|divided by|minus) (\S+)", change)
    return f"{inner} {_SIGNS[match[1]]} {match[2]}" if match else whole


def _closed(properties: JSONObject) -> JSONObject:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
