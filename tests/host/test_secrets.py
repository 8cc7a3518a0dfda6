from __future__ import annotations

import pytest
from round_trip import make_shell

from jupyter_gpu_release.analysis.cell_facts import is_latest, is_machinery
from jupyter_gpu_release.host.secrets import looks_secret


@pytest.mark.parametrize(
    "name",
    [
        "access_token",
        "hf_token",
        "HF_TOKEN",
        "api_key",
        "apikey",
        "openai_api_key",
        "aws_secret_access_key",
        "client_secret",
        "password",
        "db_passwd",
        "PASSPHRASE",
        "credentials",
        "github_pat",
        "auth",
        "secret",
        "private_key",
    ],
)
def test_secrets(name: str) -> None:
    assert looks_secret(name, "value")
    assert looks_secret(name, b"value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", "a"),
        ("tokenizer", "a"),
        ("key", "a"),
        ("keys", "a"),
        ("monkey", "a"),
        ("author", "a"),
        ("rng_key", [1]),
        ("sort_key", len),
        ("token", 5),
        ("token", "the"),
        ("pad_token", "<pad>"),
        ("eos_token", "<|reserved_special_token_250|>"),
        ("primary_key", "customerAccountId2024"),
        ("sort_key", "2024-01-05T10:11:12"),
        ("tokenizer_key", "input_ids"),
        ("cls_token", b"[CLS]"),
        ("pwd", "/home/me"),
        ("api_key", ""),
        ("model", "hf_internal/tiny"),
        ("path", "sk-learn-examples"),
        ("token", ["a"]),
        ("secretary", "a"),
        ("api_keys_count", "a"),
        ("token", None),
    ],
)
def test_no_secrets(name: str, value: object) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize("name", ["session_token", "token", "primary_key"])
@pytest.mark.parametrize(
    "value",
    [
        "9f86d081884c7d659a2feaa0c55ad015",
        "b4f1c3de-1f2a-4c58-9a77-0d9c51e7a1f3",
        "q8Zr2LxW7vTn4KpYb1Jd",
        b"q8Zr2LxW7vTn4KpYb1Jd",
    ],
)
def test_a_key_or_token_that_looks_random_is_a_secret(name: str, value: object) -> None:
    assert looks_secret(name, value)
    assert not looks_secret("checksum", value)


@pytest.mark.parametrize(
    "issued",
    [
        "hf_" + "aB3" * 11,
        "sk-proj-" + "aB3" * 8,
        "AKIA" + "Q7" * 8,
        "ghp_" + "aB3" * 12,
        "xoxb-123456789012-abc",
        "eyJhbGciOiJI.eyJzdWIiOiIx.s1g",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
    ],
)
def test_what_services_hand_out_is_a_secret_under_any_name(issued: str) -> None:
    assert looks_secret("x", issued)


def test_wrappers_and_credentials() -> None:
    class SecretStr:
        pass

    assert looks_secret("api_key", SecretStr())
    assert looks_secret("credentials", {"user": "u"})
    assert not looks_secret("api_key", {"user": "u"})


def test_machinery() -> None:
    names = dict(make_shell().user_ns)
    own = ["In", "Out", "_ih", "_dh", "get_ipython", "exit", "quit", "__builtins__"]
    assert all(is_machinery(name, names) for name in own)
    assert not any(is_machinery(name, names) for name in ["_cache", "_", "_3", "__", "x", "__mine__", "i1"])
    names |= dict.fromkeys(["In", "Out", "get_ipython", "exit", "quit"], 5)
    assert [name for name in own if is_machinery(name, names)] == ["_ih", "_dh", "__builtins__"]
    assert all(map(is_latest, ["_", "__", "___", "_12", "_i", "_iii", "_i12"]))
    assert not any(map(is_latest, ["_a", "_1a", "____", "_iiii", "_i1a"]))
