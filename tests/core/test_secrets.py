# ruff: noqa: E501 - a cell is one string
from __future__ import annotations

import pytest

from jupyter_gpu_release.core.machinery import is_last_output, is_machinery
from jupyter_gpu_release.core.secrets import looks_secret


@pytest.mark.parametrize(
    "name",
    ["token", "hf_token", "HF_TOKEN", "api_key", "apikey", "openai_api_key", "aws_secret_access_key", "client_secret",
     "password", "db_passwd", "PASSPHRASE", "credentials", "github_pat", "auth", "secret", "private_key"],
)  # fmt: skip
def test_secrets(name: str) -> None:
    assert looks_secret(name, "value")
    assert looks_secret(name, b"value")


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", "a"), ("tokenizer", "a"), ("key", "a"), ("keys", "a"), ("monkey", "a"), ("author", "a"), ("rng_key", [1]),
     ("sort_key", len), ("token", 5), ("token", ["a"]), ("secretary", "a"), ("api_keys_count", "a"), ("token", None)],
)  # fmt: skip
def test_no_secrets(name: str, value: object) -> None:
    assert not looks_secret(name, value)


def test_wrappers_and_credentials() -> None:
    class SecretStr:
        pass

    assert looks_secret("api_key", SecretStr())
    assert looks_secret("credentials", {"user": "u"})
    assert not looks_secret("api_key", {"user": "u"})


def test_machinery() -> None:
    assert all(map(is_machinery, ["In", "Out", "_i", "_i12", "_dh", "get_ipython", "exit", "__builtins__"]))
    assert not any(map(is_machinery, ["_cache", "_", "_3", "__", "x", "__mine__", "i1"]))
    assert all(map(is_last_output, ["_", "__", "___", "_12"]))
    assert not any(map(is_last_output, ["_a", "_1a", "____"]))
