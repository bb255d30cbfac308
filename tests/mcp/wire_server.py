"""A stdio MCP server in plain JSON-RPC that misbehaves on request: `python wire_server.py FLAG ...`."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

FLAGS = dict(flag.split("=", 1) if "=" in flag else (flag, "") for flag in sys.argv[1:])
LOCK = threading.Lock()
STATE = {"calls": 0, "cancelled": [], "changed": False}


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tool(name, properties=None, **more):
    return {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}, **more}


def tools():
    listed = [
        tool("echo", {"text": {"type": "string"}}),
        tool("get_state", annotations={"readOnlyHint": True}),
        tool("die", {"code": {"type": "integer"}, "marker": {"type": "string"}}),
        tool("get_or_die", {"marker": {"type": "string"}}),
        tool("hang"),
        tool("steps", {"count": {"type": "integer"}, "pause": {"type": "number"}}),
        tool("refuse", {"shape": {"type": "string"}}),
        tool("change"),
        tool("task_only", execution={"taskSupport": "required"}),
    ]
    if STATE["changed"]:
        listed = [entry for entry in listed if entry["name"] != "echo"] + [tool("fresh")]
    return listed


def page(cursor):
    if "pages" in FLAGS:
        start = int(cursor or 0)
        end = start + 50
        names = [tool(f"t{n}") for n in range(start, min(end, 120))]
        return {"tools": names, **({"nextCursor": str(end)} if end < 120 else {})}
    if "same-cursor" in FLAGS:
        return {"tools": [tool(f"t{n}") for n in range(8)], "nextCursor": "again"}
    if "endless" in FLAGS:
        number = int(cursor or 0)
        return {"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)}
    if "empty-cursor" in FLAGS:
        if cursor is None:
            return {"tools": [tool("first")], "nextCursor": ""}
        return {"tools": [tool("second")]}
    if "odd-tools" in FLAGS:
        return {"tools": odd_tools()}
    return {"tools": tools()}


def odd_tools():
    return [
        {"name": "bare", "inputSchema": {}},
        {"name": "unstated"},
        {"name": "unioned", "inputSchema": {"type": ["object", "null"], "properties": {"a": True}}},
        {"inputSchema": {"type": "object"}},
        {"name": "listed", "inputSchema": {"type": "object", "properties": []}},
        {"name": 7, "inputSchema": {"type": "object"}},
        "nothing",
        tool("echo"),
    ]


def text(value, **more):
    return {"result": {"content": [{"type": "text", "text": value}], **more}}


def call(identity, params):
    STATE["calls"] += 1
    name, arguments = params["name"], params.get("arguments") or {}
    token = params.get("_meta", {}).get("progressToken")
    match name:
        case "echo":
            return text(arguments.get("text", ""))
        case "get_state":
            state = {**STATE, "pid": os.getpid(), "meta": params.get("_meta", {}), "env": dict(os.environ)}
            return text(json.dumps(state), structuredContent=state)
        case "die":
            die(arguments.get("code", 3), arguments.get("marker"))
        case "get_or_die":
            if not Path(arguments["marker"]).exists():
                die(3, arguments["marker"])
            return text("survived")
        case "hang":
            return None
        case "steps":
            threading.Thread(target=steps, args=(identity, token, arguments), daemon=True).start()
            return None
        case "refuse":
            return refuse(arguments["shape"])
        case "change":
            STATE["changed"] = True
            for _ in range(5):
                send({"method": "notifications/tools/list_changed"})
            return text("changed")
        case _:
            return {"error": {"code": -32602, "message": f"Unknown tool: {name}"}}
    return None


def die(code, marker):
    if marker:
        with Path(marker).open("a") as file:
            file.write("died\n")
    print("disk on fire", file=sys.stderr, flush=True)
    os._exit(code)


def steps(identity, token, arguments):
    for number in range(arguments["count"]):
        time.sleep(arguments["pause"])
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number + 1}})
    send({"id": identity, **text("done")})


def refuse(shape):
    match shape:
        case "is_error":
            return text("no such customer", isError=True)
        case "empty":
            return {"result": {"content": [], "isError": True}}
        case "rpc":
            return {"error": {"code": -32602, "message": "bad arguments", "data": {"field": "shape"}}}
        case "rpc_empty":
            return {"error": {"code": -32603, "message": ""}}
        case _:
            return {"result": {"content": "not a list"}}


def answer(message):
    method, params = message["method"], message.get("params") or {}
    match method:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "wire", "version": "1"},
                    "instructions": "Be kind.",
                }
            }
        case "tools/list":
            return {"result": page(params.get("cursor"))}
        case "tools/call":
            return call(message["id"], params)
        case "notifications/cancelled":
            STATE["cancelled"].append(params["requestId"])
            return None
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def prepare():
    if "exit" in FLAGS:
        print("starting up", file=sys.stderr)
        print("API key missing", file=sys.stderr)
        sys.exit(int(FLAGS["exit"]))
    if "stubborn" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "grandchild" in FLAGS:
        child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
        process.stdout.readline()
    if "garbage" in FLAGS:
        print("Welcome to the server!\n{not json\n\n[]\n\xff", flush=True)


def main():
    prepare()
    for line in sys.stdin:
        if "silent" in FLAGS:
            continue
        message = json.loads(line)
        reply = answer(message)
        if "garbage" in FLAGS:
            print("debug: working", flush=True)
        if reply is not None and "id" in message:
            send({"id": message["id"], **reply})
    while "stubborn" in FLAGS:
        time.sleep(60)


main()
