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
        parsed = parse(cleaned)
    except (ParseError, ValueError):
        return cleaned, {}
    paragraphs = [parsed.short_description, parsed.long_description]
    described = {p.arg_name.lstrip("*"): p.description.strip() for p in parsed.params if p.description}
    return "\n\n".join(p.strip() for p in paragraphs if p), described
