import json

import pytest

from replan.errors import ConfigError
from replan.mcp import HttpServer, StdioServer, parse_servers


def test_urls_dictionaries_and_objects_are_taken_in_their_order():
    given = StdioServer("run", ("a",))
    servers = parse_servers(
        {
            "z": "https://mcp.example.com/mcp",
            "a": {"command": "npx", "args": ["-y", "server"], "env": {"K": "v"}, "cwd": "/tmp"},
            "b": given,
            "c": {"url": "http://localhost:8000", "headers": {"X": "y"}, "call_timeout": 5},
        }
    )
    assert list(servers) == ["z", "a", "b", "c"]
    assert servers["z"] == HttpServer("https://mcp.example.com/mcp")
    assert servers["a"] == StdioServer("npx", ("-y", "server"), {"K": "v"}, "/tmp")
    assert servers["b"] is given
    assert servers["c"] == HttpServer("http://localhost:8000", {"X": "y"}, call_timeout=5)


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
@pytest.mark.parametrize("form", ["value", "text", "path", "path text", "marked path"])
def test_the_file_form_of_other_clients_is_read(tmp_path, key, form):
    entries = {
        "files": {"type": "stdio", "command": "npx", "args": ["-y"], "autoApprove": ["x"]},
        "remote": {"type": "http", "url": "https://example.com/mcp"},
        "off": {"command": "x", "disabled": True},
    }
    value = {key: entries, "inputs": []}
    path = tmp_path / "mcp.json"
    path.write_text(("\ufeff" if form == "marked path" else "") + json.dumps(value), "utf-8")
    given = {"value": value, "text": json.dumps(value), "path": path, "path text": str(path), "marked path": path}[form]
    assert parse_servers(given) == {
        "files": StdioServer("npx", ("-y",)),
        "remote": HttpServer("https://example.com/mcp"),
    }


def test_a_server_may_be_called_servers():
    assert parse_servers({"servers": {"command": "x"}}) == {"servers": StdioServer("x")}


def test_nothing_is_no_servers():
    assert parse_servers(None) == parse_servers({}) == parse_servers("{}") == {}


def test_environment_variables_are_put_in(monkeypatch):
    monkeypatch.setenv("HOST", "example.com")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET", raising=False)
    servers = parse_servers(
        {
            "a": {
                "command": "${HOST}",
                "args": ["--x=${env:HOST}", "${UNSET:-two words}", "$HOST"],
                "env": {"E": "${EMPTY}"},
            },
            "b": {"url": "https://${HOST}/${EMPTY:-mcp}", "headers": {"Authorization": "Bearer ${UNSET:-}"}},
            "c": "https://${HOST}/",
        }
    )
    assert servers["a"] == StdioServer("example.com", ("--x=example.com", "two words", "$HOST"), {"E": ""})
    assert servers["b"] == HttpServer("https://example.com/mcp", {"Authorization": "Bearer "})
    assert servers["c"] == HttpServer("https://example.com/")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "x", "arg": []}, "MCP server 's': unknown field 'arg'; did you mean 'args'?"),
        ({"command": "x", "readOnly": []}, "unknown field 'readOnly'; did you mean 'read_only'?"),
        ({"command": "x", "headers": {}}, "unknown field 'headers'; known are args, call_timeout"),
        ({"command": "x", "zzz": 1}, "unknown field 'zzz'; known are"),
        ({"command": ""}, "field 'command' is ''"),
        ({"command": ["x"]}, "field 'command' is ['x']"),
        ({"command": "x", "args": "-y"}, "field 'args' is '-y'; give a list of texts"),
        ({"command": "x", "args": [8080]}, "field 'args' holds 8080; give it as a text, in quotes"),
        ({"command": "x", "env": {"K": 1}}, "field 'env': 'K' is of type int"),
        ({"command": "x", "env": [1]}, "field 'env' is [1]"),
        ({"command": "x", "cwd": 1}, "field 'cwd' is 1"),
        ({"command": "x", "url": "http://x"}, "both 'command' and 'url'"),
        ({}, "neither 'command' nor 'url'"),
        ({"type": "sse", "url": "http://x"}, "the transport 'sse' is not supported"),
        ({"type": "ws", "url": "http://x"}, "field 'type' is 'ws'"),
        ({"type": "http", "command": "x"}, "field 'type' is 'http', which does not go with 'command'"),
        ({"type": "stdio", "url": "http://x"}, "field 'type' is 'stdio', which does not go with 'url'"),
        ({"url": "ftp://x"}, "field 'url' is 'ftp://x'"),
        ({"url": "http://"}, "field 'url' is 'http://'"),
        ({"url": "http://[x"}, "field 'url' is 'http://[x'"),
        ({"url": 7}, "field 'url' is 7"),
        ({"url": "http://x", "headers": {"A": "b\r\nC: d"}}, "field 'headers': 'A' contains a line break"),
        ({"url": "http://x", "get_headers": "x"}, "field 'get_headers' is 'x'"),
        ({"url": "http://x", "connect_timeout": "30"}, "field 'connect_timeout' is '30'"),
        ({"url": "http://x", "call_timeout": -1}, "field 'call_timeout' is -1"),
        ({"url": "http://x", "max_call_time": True}, "field 'max_call_time' is True"),
        ({"url": "http://x", "trusted": "yes"}, "field 'trusted' is 'yes'"),
        ({"url": "http://x", "read_only": "get_*"}, "field 'read_only' is 'get_*'; give a list"),
        ({"url": "http://x", "disabled": 1}, "field 'disabled' is 1"),
        (
            {"url": "http://${NO_SUCH_NAME}"},
            "field 'url' needs the environment variable 'NO_SUCH_NAME', which is not set",
        ),
        (
            {"command": "x", "env": {"K": "${input:key}"}},
            "field 'env' has '${input:key}', which is no environment variable",
        ),
        (5, "it is 5; give a URL"),
    ],
)
def test_mistakes_name_the_server_and_the_field(entry, message):
    with pytest.raises(ConfigError) as caught:
        parse_servers({"s": entry})
    assert str(caught.value).startswith("MCP server 's': ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"": "http://x"}, "an MCP server has the name ''"),
        ({1: "http://x"}, "an MCP server has the name 1"),
        (["http://x"], "MCP servers are ['http://x']"),
        ("https://example.com/mcp", "give the server a name: {'name': 'https://example.com/mcp'}"),
        ("/no/such/file.json", "the MCP configuration '/no/such/file.json' cannot be read"),
        ('{"mcpServers": {} // comment\n}', "comments and trailing commas are not allowed"),
        ({"mcpServers": []}, "field 'mcpServers' is []"),
    ],
)
def test_mistakes_in_the_whole_are_explained(value, message):
    with pytest.raises(ConfigError) as caught:
        parse_servers(value)
    assert message in str(caught.value)


def test_zero_means_no_limit():
    server = HttpServer("http://x", connect_timeout=0, call_timeout=None, max_call_time=0)
    assert (server.connect_timeout, server.call_timeout, server.max_call_time) == (None, None, None)


def test_secrets_are_not_printed():
    assert "s3cret" not in repr(StdioServer("x", env={"K": "s3cret"})) + repr(HttpServer("http://x", {"K": "s3cret"}))
