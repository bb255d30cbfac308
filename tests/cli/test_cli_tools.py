import json

from tools_for_cli import add, send

from replan.testing.mcp import stdio_server


def config(*functions, **options):
    server = stdio_server(*functions)
    return {"command": server.command, "args": list(server.args), "env": dict(server.env or {}), **options}


def test_tools_are_listed_with_their_server_and_what_they_may_do(replan):
    servers = {"t": config(add, send, read_only=["add"]), "gone": {"command": "no-such-command"}}
    done = replan("tools", "--mcp", json.dumps(servers))
    assert done.code == 0
    assert done.out.splitlines() == [
        "t__add   t  read-only  Add two numbers.",
        "t__send  t  may write  Send a text to somebody.",
    ]
    assert done.err.startswith("replan: MCP server 'gone': ")
    assert done.err.count("\n") == 1


def test_tools_as_json(replan, tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"t": config(add)}}))
    [tool] = replan("tools", "--json", "--mcp", "mcp.json").lines
    assert (tool["name"], tool["server"]) == ("t__add", "t")
    assert tool["parameters"]["required"] == ["a", "b"]


def test_exit_code_1_where_no_server_works(replan):
    done = replan("tools", "--mcp", '{"a": {"command": "no-such-command"}, "b": {"command": "neither"}}')
    assert (done.code, done.out) == (1, "")
    assert [line.split(":")[1] for line in done.err.splitlines()] == [" MCP server 'a'", " MCP server 'b'"]
