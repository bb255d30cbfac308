import pytest

from replan.errors import ConfigError
from replan.models.http import check_allowed
from replan.testing import allow_real_requests, block_real_requests


@pytest.mark.parametrize(
    "target", ["https://api.example.com/v1/chat", "http://10.0.0.1:80/", "local:small", "http://localhost.example.com"]
)
def test_real_targets_are_blocked(target: str):
    with block_real_requests(), pytest.raises(ConfigError, match="blocked"):
        check_allowed(target)


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:1/", "http://127.8.9.1/"]
)
def test_this_machine_stays_allowed(target: str):
    with block_real_requests():
        check_allowed(target)


def test_leaving_restores_what_was_before():
    with allow_real_requests():
        with block_real_requests(), pytest.raises(ConfigError):
            check_allowed("https://api.example.com")
        check_allowed("https://api.example.com")


def test_without_a_context_it_stays_blocked_until_undone():
    switch = block_real_requests()
    try:
        with pytest.raises(ConfigError):
            check_allowed("local:x")
    finally:
        switch.__exit__(None, None, None)


def test_credentials_in_a_url_are_not_shown():
    with block_real_requests(), pytest.raises(ConfigError) as caught:
        check_allowed("https://user:pass@api.example.com/v1?key=hidden")
    assert "pass" not in str(caught.value)
    assert "hidden" not in str(caught.value)
