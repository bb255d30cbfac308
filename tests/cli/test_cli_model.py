import os
import signal

import pytest

from replan.errors import ConfigError
from replan.models import weights


@pytest.fixture
def pulled(monkeypatch, tmp_path):
    """Stands in for fetching: what is told of it."""
    told = []

    def pull(progress):
        for step in [
            ("downloading 1.1 GB from host", 0, 1_100_000_000),
            ("downloading 1.1 GB from host", 1_100_000_000, 1_100_000_000),
            ("waiting", 0, None),
            ("waiting", 0, None),
        ]:
            told.append(step)
            progress(*step)
        return tmp_path / "weights.gguf"

    monkeypatch.setattr(weights, "pull", pull)
    return told


def test_pulling_tells_the_size_first_and_prints_the_path(replan, pulled, tmp_path):
    done = replan("model", "pull")
    assert (done.code, done.out) == (0, f"{tmp_path / 'weights.gguf'}\n")
    assert done.err.splitlines() == [
        "downloading 1.1 GB from host: 0 MB of 1.10 GB",
        "downloading 1.1 GB from host: 1.10 GB of 1.10 GB",
        "waiting",
    ]


def test_the_path_is_printed(replan, monkeypatch, tmp_path):
    (tmp_path / "w.gguf").write_bytes(b"")
    monkeypatch.setenv("REPLAN_LOCAL_MODEL", str(tmp_path / "w.gguf"))
    for action in ("path", "pull"):
        assert replan("model", action).out == f"{tmp_path / 'w.gguf'}\n"
    assert replan("model", "ensure").out == ""


def test_missing_weights_are_told(replan):
    done = replan("model", "path")
    assert (done.code, done.out) == (2, "")
    assert done.err == "replan: the weights are not here yet; fetch them with: replan model pull\n"


@pytest.mark.parametrize(("variable", "fetched"), [("OPENAI_API_KEY", False), ("", True)])
def test_ensuring_fetches_only_what_the_default_model_needs(replan, pulled, monkeypatch, variable, fetched):
    if variable:
        monkeypatch.setenv(variable, "k")
    done = replan("model", "ensure")
    assert (done.code, done.out) == (0, "")
    assert bool(pulled) == fetched


def test_a_failure_is_one_line(replan, monkeypatch):
    def pull(progress):
        raise ConfigError("could not be fetched:\n- a\n- b")

    monkeypatch.setattr(weights, "pull", pull)
    done = replan("model", "pull")
    assert (done.code, done.err) == (2, "replan: could not be fetched: - a - b\n")


def test_pulling_can_be_interrupted(replan, monkeypatch):
    def pull(progress):
        os.kill(os.getpid(), signal.SIGINT)
        progress("downloading", 0, 10)

    monkeypatch.setattr(weights, "pull", pull)
    done = replan("model", "pull")
    assert done.code == 130
    assert "replan: interrupted; what was fetched is kept" in done.err
