"""The operator's file about notifications: what it says, which mistakes are named, where its password goes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.host.environment import for_cluster
from jupyter_gpu_release.local_cluster.notify_file import notify_rules
from jupyter_gpu_release.protocol.config import MailRules, NotifyRules, WebhookRules

_GOOD = """
notify:
  waited: 5m
  link: https://hub.example.org/hub/user-redirect/lab?gpu-run={run}
  mail: {host: smtp.example.org, sender: gpu@example.org, user: gpu, domains: [example.org]}
  webhooks: {hosts: [hooks.slack.com]}
"""
_MISTAKES = {
    "mail: {}": "notify.mail: the field host is missing",
    "mail: {host: h, sender: a@b, prot: 1}": "notify.mail.prot: there is no such field\n  → did you mean port?",
    "mail: {host: h, sender: nobody}": "needs `host:` and `sender:`",
    "mail: {host: h, sender: '@b'}": "needs `host:` and `sender:`",
    "mail: {host: '', sender: a@b}": "needs `host:` and `sender:`",
    "mail: {host: h, sender: a@b, port: 65536}": "port 65536",
    "mail: {host: h, sender: a@b, port: 0}": "port 0",
    "mail: {host: h, sender: a@b, tls: maybe}": "maybe",
    "mail: {host: h, sender: a@b, user: u, tls: none}": "in plain text",
    "mail: {host: h, sender: a@b, user: u}": "no password for u at h",
    "mail: {host: h, sender: a@b, password_file: f}": "a password_file without a user",
    "webhooks: {hosts: ['me@chat.example.org']}": "without https://",
    "webhooks: {hosts: ['']}": "without https://",
    "webhooks: {proxy: 'socks5://proxy:3128'}": "http://host:port",
    "webhooks: {hosts: ['https://hooks.slack.com']}": "without https://",
    "webhooks: {proxy: 'http://me:pw@proxy:3128'}": "http://host:port",
    "waited: soon": "not a duration",
    "link: javascript:alert(1)": "begins with https://",
    "mail: [": "line 3: not YAML: ",
}


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    paths = HomePaths(tmp_path / "home")
    paths.create()
    return paths


def test_the_file_says_how_users_may_be_told(home: HomePaths, tmp_path: Path) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text(_GOOD)
    environment = {"JUPYTER_GPU_NOTIFY": str(file), "JUPYTER_GPU_SMTP_PASSWORD": "correct horse"}
    rules = notify_rules(home, environment)
    password = home.root / "smtp-password"
    mail = MailRules(
        "smtp.example.org", "gpu@example.org", user="gpu", password_file=str(password), domains=["example.org"]
    )
    link = "https://hub.example.org/hub/user-redirect/lab?gpu-run={run}"
    assert rules == NotifyRules(mail, WebhookRules(["hooks.slack.com"]), 300.0, link)
    assert (password.read_text(), stat.S_IMODE(password.stat().st_mode)) == ("correct horse\n", 0o600)
    assert for_cluster(environment) == {"JUPYTER_GPU_NOTIFY": str(file)}, "cells would see the password"
    assert notify_rules(home, for_cluster(environment)) == rules, "the daemon finds it in its file"
    password.chmod(0o644)
    with pytest.raises(OptionError, match="may be read by others") as refused:
        notify_rules(home, for_cluster(environment))
    assert refused.value.hint == f"chmod 600 {password}"
    assert notify_rules(home, {}) == NotifyRules()


@pytest.mark.parametrize(("written", "said"), _MISTAKES.items())
def test_a_mistake_is_named_before_anything_starts(home: HomePaths, tmp_path: Path, written: str, said: str) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text(f"notify:\n  {written}\n")
    with pytest.raises(OptionError) as refused:
        notify_rules(home, {"JUPYTER_GPU_NOTIFY": str(file)})
    assert said in str(refused.value)
    assert refused.value.hint


def test_a_file_has_the_one_entry_and_no_other(home: HomePaths, tmp_path: Path) -> None:
    file = tmp_path / "notify.yaml"
    mistakes = {
        "": "line 1: the field notify is missing",
        "- notify": "line 1: expected a table, it is a list",
        "notify: 1": "line 1: notify: expected a table, it is a whole number",
        "notify: {waited: 5m}\nother: 1": "line 2: other: there is no such field",
    }
    for written, said in mistakes.items():
        file.write_text(written)
        with pytest.raises(OptionError, match=said):
            notify_rules(home, {"JUPYTER_GPU_NOTIFY": str(file)})


def test_a_password_file_that_is_named_goes_before_the_variable(home: HomePaths, tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "notify.yaml"
    secret.write_text("from the file")
    secret.chmod(0o600)
    file.write_text(f"notify: {{mail: {{host: localhost, sender: a@b, user: u, tls: none, password_file: {secret}}}}}")
    rules = notify_rules(home, {"JUPYTER_GPU_NOTIFY": str(file), "JUPYTER_GPU_SMTP_PASSWORD": "from the variable"})
    assert rules.mail is not None, "a login in plain text is allowed to this machine itself"
    assert (rules.mail.password_file, secret.read_text()) == (str(secret), "from the file")
    assert not (home.root / "smtp-password").exists()
