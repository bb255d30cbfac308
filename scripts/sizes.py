"""Print how large functions, parameter lists and files are, the longest first: the tail is what readers remember."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def main() -> None:
    functions: list[tuple[int, int, str]] = []
    files: list[tuple[int, str]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(SOURCE))
        files.append((text.count("\n"), name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = node.args
                count = len(arguments.args) + len(arguments.kwonlyargs) + len(arguments.posonlyargs)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((lines, count, f"{name}:{node.lineno} {node.name}"))
    lengths = sorted(lines for lines, _, _ in functions)
    print(f"{len(files)} files, {sum(lines for lines, _ in files)} lines, {len(functions)} functions")
    print(
        f"functions: median {lengths[len(lengths) // 2]} lines, nine in ten at most {lengths[len(lengths) * 9 // 10]}"
    )
    for lines, _, name in sorted(functions, reverse=True)[:5]:
        print(f"  {lines:4} lines  {name}")
    for _, count, name in sorted(functions, key=lambda row: -row[1])[:3]:
        print(f"  {count:4} parameters  {name}")
    for lines, name in sorted(files, reverse=True)[:5]:
        print(f"  {lines:4} lines  {name}")


if __name__ == "__main__":
    main()
