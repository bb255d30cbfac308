"""Expressions over the outputs of steps, `${a.result.price} * 3 + 15%`: computed exactly and in bounded work.

Numbers with `+ - * / // % **`, parentheses, comparisons, `and or not`, texts in quotes, lists in brackets, and the
functions `min max sum average round abs len`. References and quoted texts become names before anything is parsed, so
what an output says is a value and never a part of the expression. `15%` (no space before the sign, and no operand
after it) is 0.15; `15 % 4` and `15%4` are remainders. `//` and `%` round down, as Python's do; `round` rounds halves
away from zero. Results that are whole and fit in 64 bits are integers, others the nearest float.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.planning.references import references, resolve

from .quantities import CONTEXT, ComputeError, described, keys, number, plain, reason, same, shown

__all__ = ["Expression", "is_reference", "read"]

_MAX_CHARS, _MAX_DEPTH, _MAX_LINE, _MAX_PLACES = 2_000, 100, 160, 50

_REFERENCE = r"""\$\{(?:[^}"$]|"(?:[^"\\]|\\.)*")*\}"""
_WHOLE = re.compile(_REFERENCE)
_STEP = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
_OPERAND = re.compile(rf"""({_REFERENCE})|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_OTHER = re.compile(r"[^\w\s.+\-*/%()<>=!,\[\]]", re.ASCII)
_DIGITS = re.compile(r"(?<![\w.])\.?\d[\w.]*(?:(?<=[eE])[+-]\d[\w.]*)?")
_LITERAL = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_PERCENT = re.compile(r"(?<=[\w)])%(?=\s*(?:$|[),*/<>=!\]]|and\b|or\b)|\s*[+-]\s)")


def is_reference(text: JSON) -> bool:
    """Whether a value is one well-formed reference and nothing else."""
    return isinstance(text, str) and bool(_WHOLE.fullmatch(text)) and any(references(text))


def read(value: JSON, outputs: Mapping[str, JSONObject]) -> JSON:
    """The value with its references replaced.

    A computed step that is referred to as a whole stands for its result. Raises `MissingReference`.
    """
    if is_list(value):
        return [read(item, outputs) for item in value]
    if is_object(value):
        return {key: read(item, outputs) for key, item in value.items()}
    whole = _STEP.fullmatch(value) if isinstance(value, str) else None
    known = outputs.get(whole[1]) if whole else None
    return known["result"] if is_object(known) and {"result", "text"} <= known.keys() else resolve(value, outputs)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. `operands` maps names in `tree` to the references and texts that they stand for; the
    attribute `mark` is a percent sign.
    """

    text: str
    tree: ast.expr
    mark: str
    operands: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """Raises `ComputeError` where the text is no expression of this language."""
        if len(text) > _MAX_CHARS:
            raise ComputeError(f"the expression has more than {_MAX_CHARS} characters")
        mark = "r"
        while mark in text:
            mark += "r"
        operands: dict[str, str] = {}
        code = _PERCENT.sub(f" .{mark}", " ".join("".join(_named(text, mark, operands)).split()))
        try:
            found = cls(text.strip(), ast.parse(code, mode="eval").body, mark, operands)
            found._check(found.tree, _MAX_DEPTH)
        except (SyntaxError, MemoryError, RecursionError) as error:
            why = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
            raise ComputeError(f"{text[:200]!r} is not an expression: {why}") from None
        return found

    def evaluate(self, outputs: Mapping[str, JSONObject]) -> tuple[JSON, str]:
        """The value, and a line that says it: the expression with its values, if that is short.

        Raises `ComputeError`, and `MissingReference` for references that lead nowhere.
        """
        try:
            values = {name: read(_unquoted(source), outputs) for name, source in self.operands.items()}
            with localcontext(CONTEXT):
                value = self._value(self.tree, values)
                said = shown(value if isinstance(value, Decimal) else _json(value, self.text))
                return _json(value, self.text), f"{self._line(values, said)} = {said}"
        except (ArithmeticError, RecursionError) as error:
            raise ComputeError(f"{self.text[:200]!r} cannot be computed: {reason(error)}") from None

    def _line(self, values: Mapping[str, JSON], said: str) -> str:
        by_source = {source: values[name] for name, source in self.operands.items()}
        line = _OPERAND.sub(lambda match: shown(by_source[match[0]]) if match[1] else match[0], self.text)
        return line if len(line) <= _MAX_LINE and line != said and line.isprintable() else "value"

    def _shown(self, node: ast.AST) -> str:
        """A part of the expression as it was written, for errors."""
        text = re.sub(rf"\s?\.{self.mark}\b", "%", ast.unparse(node))
        return re.sub(rf"\b{self.mark}\d+\b", lambda match: self.operands.get(match[0], match[0]), text)

    def _check(self, node: ast.AST, depth: int) -> None:
        """Raises where something other than the language is in the tree."""
        if depth == 0:
            raise RecursionError
        if isinstance(node, ast.expr) and (problem := self._problem(node)):
            raise ComputeError(f"in the expression {self.text[:200]!r}: {problem}")
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and child is node.func):
                self._check(child, depth - 1)

    def _problem(self, node: ast.expr) -> str | None:  # noqa: PLR0911  # one case for each kind of node
        match node:
            case ast.Name(id=name) if name not in self.operands and name not in _WORDS:
                return f"{name!r} is not known; write references like ${{{name}.result}} and texts in quotes"
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name not in _FUNCTIONS:
                return f"there is no function {name!r}; there are {', '.join(_FUNCTIONS)}"
            case ast.Compare(ops=ops) if not all(type(op) in _COMPARISONS for op in ops):
                return f"{self._shown(node)!r} is no comparison; there are < <= > >= == !="
            case ast.BinOp(op=op) if type(op) not in _ARITHMETIC:
                return f"{self._shown(node)!r} has none of the operators + - * / // % **"
            case ast.Constant(value=bool() | int() | float()) | ast.Attribute(attr=self.mark) | ast.Name():
                return None
            case ast.Call(func=ast.Name(), keywords=[]) | ast.Compare() | ast.BinOp():
                return None
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()) | ast.BoolOp() | ast.List():
                return None
            case ast.Attribute():
                return f"{self._shown(node)!r} is not known; write references like ${{{self._shown(node)}}}"
            case ast.Tuple():
                return f"{self._shown(node)!r} is no number; numbers are written without separators"
            case _:
                return f"{self._shown(node)!r} cannot be part of it; there are numbers, operators and functions"

    def _value(self, node: ast.expr, values: Mapping[str, JSON]) -> JSON:  # noqa: PLR0911  # as above
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return values[name] if name in values else _WORDS[name]
            case ast.List(elts=items):
                return [self._value(item, values) for item in items]
            case ast.Attribute(value=inner):
                return self._number(inner, values) / 100
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._truth(inner, values)
            case ast.UnaryOp(op=op, operand=inner):
                return -self._number(inner, values) if isinstance(op, ast.USub) else self._number(inner, values)
            case ast.BinOp(left=left, op=op, right=right):
                return _ARITHMETIC[type(op)](self._number(left, values), self._number(right, values))
            case ast.BoolOp(op=op, values=parts):
                truths = [self._truth(part, values) for part in parts]
                return all(truths) if isinstance(op, ast.And) else any(truths)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compare([left, *rest], ops, values)
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name]([self._value(arg, values) for arg in args], self._shown(node))
            case _:
                raise ComputeError(f"{self._shown(node)!r} cannot be part of an expression")

    def _number(self, node: ast.expr, values: Mapping[str, JSON]) -> Decimal:
        return number(self._value(node, values), self._shown(node))

    def _truth(self, node: ast.expr, values: Mapping[str, JSON]) -> bool:
        value = self._value(node, values)
        if isinstance(value, bool):
            return value
        raise ComputeError(f"{self._shown(node)} is {described(value)}, not true or false")

    def _compare(self, nodes: list[ast.expr], ops: list[ast.cmpop], values: Mapping[str, JSON]) -> bool:
        found = [self._value(node, values) for node in nodes]
        names = [self._shown(node) for node in nodes]
        return all(_COMPARISONS[type(op)](found[i : i + 2], names[i : i + 2]) for i, op in enumerate(ops))


def _named(text: str, mark: str, operands: dict[str, str]) -> Iterator[str]:
    """The text with names for its references and quoted texts, which go into `operands`."""
    at = 0
    for match in [*_OPERAND.finditer(text), None]:
        piece = text[at : match.start() if match else None]
        if odd := _OTHER.search(piece):
            hint = "; references are written like ${step.result.name}" if odd[0] in "${}" else ""
            raise ComputeError(f"{odd[0]!r} cannot stand in the expression {text[:200]!r}{hint}")
        for run in _DIGITS.finditer(piece):
            if not _LITERAL.fullmatch(run[0]):
                raise ComputeError(f"{run[0]!r} in {text[:200]!r} is not a number; write it without a unit")
        yield piece
        if match:
            if match[1] and not is_reference(match[1]):
                raise ComputeError(f"{match[1]!r} is not a reference; write it like ${{step.result.items[0].id}}")
            name = f"{mark}{len(operands)}"
            operands[name] = match[0]
            at = match.end()
            yield f" {name}"


def _unquoted(source: str) -> str:
    return source if source.startswith("$") else re.sub(r"\\(.)", r"\1", source[1:-1], flags=re.DOTALL)


def _json(value: JSON, name: str) -> JSON:
    """The value with its numbers as JSON has them."""
    if value is None:
        raise ComputeError(f"{name[:200]} is null")
    if is_list(value):
        return [_json(item, name) for item in value]
    numeric = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return plain(number(value, name[:200])) if numeric else value


def _flat(value: JSON) -> Iterator[JSON]:
    if is_list(value):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _values(args: list[JSON], name: str) -> tuple[list[JSON], list[str]]:
    """The values of all arguments and their names in errors. Raises where there are none."""
    values = list(_flat(args))
    if not values:
        raise ComputeError(f"{name} has no values")
    return values, [f"value {place} of {name}" for place in range(1, len(values) + 1)]


def _sum(args: list[JSON], name: str) -> Decimal:
    return sum(map(number, *_values(args, name)), Decimal())


def _average(args: list[JSON], name: str) -> Decimal:
    return _sum(args, name) / len(_values(args, name)[0])


def _extreme(best: Callable[..., Any]) -> Callable[[list[JSON], str], JSON]:
    def find(args: list[JSON], name: str) -> JSON:
        found: Any = best(keys(*_values(args, name)))
        return found if isinstance(found, Decimal) else found[1]

    return find


def _absolute(args: list[JSON], name: str) -> Decimal:
    if len(args) != 1:
        raise ComputeError(f"{name}: abs takes one number")
    return abs(number(args[0], name))


def _round(args: list[JSON], name: str) -> Decimal:
    places = number(args[1], name) if len(args) == 2 else Decimal()
    if len(args) not in (1, 2) or abs(places) > _MAX_PLACES or places % 1:
        raise ComputeError(f"{name}: round takes a number and, if wanted, how many decimal places to keep")
    return number(args[0], name).quantize(Decimal((0, (1,), -int(places))), ROUND_HALF_UP)


def _length(args: list[JSON], name: str) -> Decimal:
    if len(args) != 1 or not isinstance(args[0], (str, list, dict)):
        raise ComputeError(f"{name}: len takes one list, text or object")
    return Decimal(len(args[0]))  # pyright: ignore[reportUnknownArgumentType]  # any JSON


def _floor(left: Decimal, right: Decimal) -> tuple[Decimal, Decimal]:
    """Quotient and remainder, rounded down: decimals themselves round towards zero."""
    if not right:
        raise ZeroDivisionError
    quotient, remainder = divmod(left, right)
    return (quotient - 1, remainder + right) if remainder and (remainder < 0) != (right < 0) else (quotient, remainder)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Sequence[JSON], Sequence[str]], bool]:
    return lambda pair, names: test(*keys(pair, names))


_WORDS: dict[str, JSON] = {"true": True, "false": False}
_FUNCTIONS: dict[str, Callable[[list[JSON], str], JSON]] = {
    "min": _extreme(min),
    "max": _extreme(max),
    "sum": _sum,
    "average": _average,
    "round": _round,
    "abs": _absolute,
    "len": _length,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: _floor(left, right)[0],
    ast.Mod: lambda left, right: _floor(left, right)[1],
    ast.Pow: lambda left, right: left**right,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Sequence[JSON], Sequence[str]], bool]] = {
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.Eq: lambda pair, names: same(pair[0], pair[1], names),
    ast.NotEq: lambda pair, names: not same(pair[0], pair[1], names),
}
