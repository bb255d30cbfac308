"""What a docstring says of a tool: its text, and its parameters."""

import inspect
import re

_SECTION = re.compile(r"^\s*(:\w[^:]*:|@\w+|[A-Z][A-Za-z ]+:\s*$|-{3,}\s*$)", re.MULTILINE)


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description without its sections, and the text of each parameter; Google, NumPy and reST styles."""
    cleaned = inspect.cleandoc(text) if text else ""
    if not _SECTION.search(cleaned):
        return cleaned, {}
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(f"-\n\n{cleaned}")  # with a title, so that all of the text is one description
    except (ParseError, ValueError):
        return cleaned, {}
    described = {
        name.strip(): parameter.description.strip()
        for parameter in parsed.params
        if parameter.description
        for name in parameter.arg_name.split(",")
    }
    return (parsed.long_description or "").strip(), described
