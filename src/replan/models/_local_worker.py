"""The process that holds the embedded model. It is started by its file name and imports nothing of Replan.

Lines of JSON come in by stdin: `{"id": 1, "body": {...}}` is a request (the body of a chat completion), `{"cancel": 1}`
ends one. Lines of JSON go out by stdout: `{"ready": true}` or `{"fatal": text}` once, then for each request `{"id": 1}`
with `started`, `progress` (tokens of the prompt that are read, and of all), `text`, and at its end `done`, `error` or
`cancelled`. Requests run one after the other: on few cores two at once are no faster together. The end of stdin ends
the process, whatever it is doing; on Linux the death of its parent does too.
"""

import ctypes
import json
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import Any

_SOCKET_PATH = 90  # the longest path of a Unix socket is about 100 bytes
_BATCH = 64  # tokens of a prompt read at once; a cancelled request ends between two batches (about a second)
_PROMPT_CACHE_MIB = 384  # prompts of other conversations kept for later, about 13,000 tokens
_PR_SET_PDEATHSIG = 1


class Requests:
    """What is to be done, filled by the thread that reads stdin."""

    def __init__(self) -> None:
        self._waiting: deque[dict[str, Any]] = deque()
        self._cancelled: set[int] = set()
        self._open: set[int] = set()
        self._changed = threading.Condition()

    def add(self, message: dict[str, Any]) -> None:
        """Take in one message of the parent."""
        with self._changed:
            if "cancel" in message:
                if message["cancel"] in self._open:
                    self._cancelled.add(message["cancel"])
            else:
                self._open.add(message["id"])
                self._waiting.append(message)
            self._changed.notify()

    def next(self) -> dict[str, Any]:
        """The next request, waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            return self._waiting.popleft()

    def is_cancelled(self, request: int) -> bool:
        """Whether the parent has given the request up."""
        return request in self._cancelled

    def finish(self, request: int) -> None:
        """Forget the request."""
        with self._changed:
            self._open.discard(request)
            self._cancelled.discard(request)


class Output:
    """The parent's end of the line. What libraries print to stdout goes to stderr instead."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Write one message; without a parent there is nothing left to do."""
        try:
            self._file.write(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)


def load(options: dict[str, Any]) -> Any:
    """The engine with the model loaded, reachable by this process only.

    The engine insists on a listening socket: it gets a Unix socket in a private folder that is removed at once (where
    that cannot be, a port of this machine), and a random key that nobody knows.
    """
    engine: Any = import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = options["model"]
    params.n_ctx, params.n_parallel = options["n_ctx"], 1
    params.n_batch = params.n_ubatch = _BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.no_extra_bufts = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.force_pure_content_parser = True
    params.offline, params.ui, params.endpoint_slots, params.n_threads_http = True, False, False, 1
    params.verbosity = 0
    params.api_keys = [secrets.token_hex(32)]
    with tempfile.TemporaryDirectory(prefix="replan-", ignore_cleanup_errors=True) as folder:
        socket = str(Path(folder, "s.sock"))
        if os.name == "posix" and len(os.fsencode(socket)) <= _SOCKET_PATH:
            params.hostnames = [socket]
        return engine.Server(params)


class Answer:
    """One request's way through the engine: sends on what the engine's chunks say."""

    def __init__(self, request: int, requests: Requests, output: Output) -> None:
        self._request, self._requests, self._output = request, requests, output
        self._finish = "stop"
        self._usage: dict[str, Any] = {}
        self._error: dict[str, Any] | None = None

    def take(self, chunk: dict[str, Any]) -> bool:
        """One chunk of the engine. True makes the engine stop."""
        if self._requests.is_cancelled(self._request):
            return True
        if "choices" not in chunk:
            self._error = chunk.get("error", chunk)
            return True
        if "prompt_progress" in chunk:
            progress = chunk["prompt_progress"]
            self._send({"progress": [progress["processed"], progress["total"]]})
        for choice in chunk["choices"]:
            self._finish = choice.get("finish_reason") or self._finish
            if text := choice.get("delta", {}).get("content"):
                self._send({"text": text})
        self._usage = chunk.get("usage") or self._usage
        return False

    def end(self) -> None:
        """Say how it ended."""
        if self._requests.is_cancelled(self._request):
            self._send({"cancelled": True})
        elif self._error is not None:
            self._send({"error": self._error})
        else:
            self._send({"done": {"finish": self._finish, "usage": self._usage}})
        self._requests.finish(self._request)

    def fail(self, error: Exception) -> None:
        """Say that the engine itself failed."""
        self._error = {"message": f"{type(error).__name__}: {error}"}

    def _send(self, message: dict[str, Any]) -> None:
        self._output.send({"id": self._request, **message})


def serve(engine: Any, requests: Requests, output: Output) -> None:
    """Answer requests for ever."""
    while True:
        message = requests.next()
        answer = Answer(message["id"], requests, output)
        if not requests.is_cancelled(message["id"]):
            output.send({"id": message["id"], "started": True})
            try:
                engine.handle_chat_completions(message["body"], answer.take)
            except Exception as error:  # noqa: BLE001  # one bad request must not end the process
                answer.fail(error)
        answer.end()


def _read(requests: Requests) -> None:
    for line in sys.stdin.buffer:
        requests.add(json.loads(line))
    os._exit(0)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def main() -> None:
    """Run until the parent ends it."""
    options = json.loads(sys.argv[1])
    _die_with(options["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output, requests = Output(), Requests()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    try:
        engine = load(options)
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent has to know
        output.send({"fatal": f"{type(error).__name__}: {error}"})
        os._exit(1)
    output.send({"ready": True})
    serve(engine, requests, output)


if __name__ == "__main__":
    main()
