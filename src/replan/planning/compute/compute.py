"""Computed steps: arithmetic, aggregates and orderings over the outputs of earlier steps, without a model or a tool.

A spec has one operator. `value` is an expression (see `expression`). The others take a list of references and values,
or one reference to a list: `sum average count min max rank sort filter`. Options: `by`, the path of the field that
counts in each element; `where`, `{"by": path, "is": one of < <= > >= == != in, "than": value}`, which elements take
part; `labels`, what the elements are called; `order`, `ascending` or `descending`, of `rank` and `sort`.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from itertools import groupby

from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.planning.references import MissingReference, pick

from .expression import Expression, is_reference
from .quantities import CONTEXT, ComputeError, described, keys, listed, number, plain, reason, shown
from .rows import TESTS, Row, read_rows

__all__ = ["OPERATORS", "ComputeError", "compute", "open_operand", "problems"]

OPERATORS = ("value", "sum", "average", "count", "min", "max", "rank", "sort", "filter")
"""What a compute spec can ask for."""


def compute(spec: JSONObject, outputs: Mapping[str, JSONObject], labels: Mapping[str, str] = {}) -> JSONObject:
    """The outputs of a computed step: `result`, and `text`, a line that says it.

    `min` and `max` also give the `label` of the element, and its `value` where `by` is given; where elements are equal,
    `ties` has their labels (of `rank` and `sort`: a list of such lists). `rank`, `sort` and `filter` give elements:
    objects and the plain values of one list as they are, other plain values as `{"label", "value"}`. `labels` says what
    steps are called, by id.

    Raises `ComputeError`, and `MissingReference` for references that lead nowhere.
    """
    if found := problems(spec):
        raise ComputeError("; ".join(found))
    kind = next(name for name in OPERATORS if name in spec)
    if spec[kind] is None:
        raise ComputeError(f"the operand of {kind!r} is still open")
    try:
        if kind == "value":
            return _evaluate(spec[kind], outputs)
        with localcontext(CONTEXT):
            return _AGGREGATES[kind](read_rows(spec[kind], spec, outputs, labels), kind, spec)
    except (ArithmeticError, RecursionError) as error:
        raise ComputeError(f"{kind!r} cannot be computed: {reason(error)}") from None


def open_operand(spec: JSONObject) -> str | None:
    """The operator whose operand is null, to be filled in when results are there."""
    return next((name for name in OPERATORS if name in spec and spec[name] is None), None)


def problems(spec: JSONObject) -> list[str]:
    """What is wrong with a spec whatever the results will be, one sentence each; none where it is fine."""
    found = [name for name in OPERATORS if name in spec]
    if len(found) != 1:
        there = f"it has {', '.join(found)}" if found else f"it has {listed(map(repr, spec)) or 'nothing'}"
        return [f"compute takes exactly one of {', '.join(OPERATORS)}; {there}"]
    kind = found[0]
    allowed = _options(kind)
    given = {name: value for name, value in spec.items() if name != kind and value is not None}
    said = [
        f"{kind!r} takes no {name!r}, only {', '.join(allowed) or 'its operand'}" for name in given.keys() - allowed
    ]
    said += _expression_problems(spec[kind]) if kind == "value" else _operand_problems(kind, spec[kind])
    said += [text for name in allowed if name in given for text in _CHECKS[name](given[name])]
    if kind == "filter" and spec[kind] is not None and "where" not in given:
        said.append("'filter' needs 'where'")
    return said


def _options(kind: str) -> list[str]:
    if kind == "value":
        return []
    return ["by", "where", "labels", "order"] if kind in ("rank", "sort") else ["by", "where", "labels"]


def _expression_problems(operand: JSON) -> list[str]:
    if isinstance(operand, str):
        try:
            Expression.parse(operand)
        except ComputeError as error:
            return [str(error)]
    elif operand is not None and (isinstance(operand, bool) or not isinstance(operand, (int, float))):
        return [f"'value' takes an expression as a text, not {described(operand)}"]
    return []


def _operand_problems(kind: str, operand: JSON) -> list[str]:
    if not is_list(operand):
        if operand is None or is_reference(operand):
            return []
        return [f"{kind!r} takes a list of references and values, or one reference to a list, not {described(operand)}"]
    odd = [item for item in operand if item is None or (str(item).startswith("${") and not is_reference(item))]
    said = [f"{described(item)} in {kind!r} is neither a value nor a reference like ${{step.result}}" for item in odd]
    return said or ([] if operand or kind in ("count", "filter") else [f"{kind!r} has an empty list"])


def _by_problems(path: JSON) -> list[str]:
    try:
        if isinstance(path, str) and path:
            pick({}, path)
            return []
    except MissingReference:
        return []
    except ValueError:
        pass
    return [f"'by' is the path of a field in each element, like price or offer.price, not {described(path)}"]


def _where_problems(where: JSON) -> list[str]:
    if not is_object(where) or not {"is", "than"} <= where.keys() or not where.keys() <= {"by", "is", "than"}:
        return [f'\'where\' is an object like {{"by": "price", "is": "<", "than": 5}}, not {described(where)}']
    said = [] if where.get("by") is None else _by_problems(where["by"])
    test, than = where["is"], where["than"]
    if test not in TESTS:
        return [*said, f"'is' is one of {' '.join(TESTS)}, not {described(test)}"]
    if test == "in" and not is_list(than) and not is_reference(than):
        return [*said, f"'in' takes a list or a reference to one, not {described(than)}"]
    return said


def _label_problems(labels: JSON) -> list[str]:
    if is_reference(labels) or (is_list(labels) and all(isinstance(label, str) for label in labels)):
        return []
    return [f"'labels' is a list of texts, one for each element, not {described(labels)}"]


def _order_problems(order: JSON) -> list[str]:
    return (
        [] if order in ("ascending", "descending") else [f"'order' is ascending or descending, not {described(order)}"]
    )


_CHECKS = {"by": _by_problems, "where": _where_problems, "labels": _label_problems, "order": _order_problems}


def _evaluate(operand: JSON, outputs: Mapping[str, JSONObject]) -> JSONObject:
    if isinstance(operand, str):
        value, text = Expression.parse(operand).evaluate(outputs)
        return {"result": value, "text": text}
    value = number(operand, "'value'")
    return {"result": plain(value), "text": f"value = {shown(value)}"}


def _total(rows: list[Row], kind: str, spec: JSONObject) -> JSONObject:
    _need(rows, kind, spec)
    total = sum((number(row.value, row.name) for row in rows), Decimal())
    result = total / len(rows) if kind == "average" else total
    return {"result": plain(result), "text": f"{kind} = {shown(result)}"}


def _count(rows: list[Row], kind: str, _spec: JSONObject) -> JSONObject:
    return {"result": len(rows), "text": f"{kind} = {len(rows)}"}


def _extreme(rows: list[Row], kind: str, spec: JSONObject) -> JSONObject:
    found = _keys(rows, kind, spec)
    best: Decimal | tuple[str, str] = max(found) if kind == "max" else min(found)
    winners = [row for row, key in zip(rows, found, strict=True) if key == best]
    winner = winners[0]
    value = plain(best) if isinstance(best, Decimal) else winner.value
    words = {"max": "highest", "min": "lowest"} if isinstance(best, Decimal) else {"max": "last", "min": "first"}
    text = winner.said
    if len(winners) > 1:
        text = f"{listed((row.label for row in winners), ' = ')} ({shown(value)}), equal"
    result = {"result": value, "label": winner.label}
    if spec.get("by") is not None:
        result |= {"result": winner.element, "value": value}
    ties = {"ties": [row.label for row in winners]} if len(winners) > 1 else {}
    return {**result, **ties, "text": f"{words[kind]}: {text}"}


def _ordered(rows: list[Row], kind: str, spec: JSONObject) -> JSONObject:
    descending = spec.get("order") == "descending"
    pairs = sorted(zip(_keys(rows, kind, spec), rows, strict=True), key=lambda pair: pair[0], reverse=descending)
    groups = [[row for _, row in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    said = [" = ".join(row.said for row in group) for group in groups]
    ties = [[row.label for row in group] for group in groups if len(group) > 1]
    result: JSONObject = {"result": [row.element for _, row in pairs], **({"ties": ties} if ties else {})}
    return {**result, "text": listed(said, " > " if descending else " < ")}


def _filtered(rows: list[Row], _kind: str, _spec: JSONObject) -> JSONObject:
    said = listed(row.said for row in rows)
    return {"result": [row.element for row in rows], "text": f"{len(rows)} found{': ' if rows else ''}{said}"}


def _need(rows: list[Row], kind: str, spec: JSONObject) -> None:
    if not rows:
        why = "is empty" if spec.get("where") is None else "has no element that fulfils 'where'"
        raise ComputeError(f"{kind!r} of nothing: {described(spec[kind])} {why}")


def _keys(rows: list[Row], kind: str, spec: JSONObject) -> list[Decimal] | list[tuple[str, str]]:
    _need(rows, kind, spec)
    return keys([row.value for row in rows], [row.name for row in rows])


_AGGREGATES: dict[str, Callable[[list[Row], str, JSONObject], JSONObject]] = {
    "sum": _total,
    "average": _total,
    "count": _count,
    "min": _extreme,
    "max": _extreme,
    "rank": _ordered,
    "sort": _ordered,
    "filter": _filtered,
}
