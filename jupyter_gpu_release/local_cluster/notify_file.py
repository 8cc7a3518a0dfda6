"""The file in which an operator writes how users may be told of their runs (``JUPYTER_GPU_NOTIFY``)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ..client.home import HomePaths, write_secret
from ..errors import OptionError
from ..protocol.config import MailRules, NotifyRules
from ..settings.setting import read_text
from ..settings.table import VARIABLES
from ..settings.yaml_document import YamlDocument
from ..units import parse_seconds

VARIABLE, PASSWORD = VARIABLES["notify"].variable, VARIABLES["smtp_password"].variable
_HINT = "see `jupyter gpu docs operate/notify`"
_HERE = ("localhost", "127.0.0.1", "::1")


def notify_rules(home: HomePaths, environment: Mapping[str, str]) -> NotifyRules:
    """The rules that ``JUPYTER_GPU_NOTIFY`` names; without it nobody is told.

    A password in ``JUPYTER_GPU_SMTP_PASSWORD`` is put into a file of the home (0600): the cluster's processes do not
    get the variable. Raises :class:`OptionError` for a mistake, which names its line or field.
    """
    path = environment.get(VARIABLE, "")
    if not path:
        return NotifyRules()
    rules = _checked(_read(Path(path)), path)
    if rules.mail is None or not rules.mail.user:
        return rules
    mail = msgspec.structs.replace(rules.mail, password_file=_password_file(rules.mail, home, environment))
    return msgspec.structs.replace(rules, mail=mail)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    notify: NotifyRules


def _read(path: Path) -> NotifyRules:
    document = YamlDocument(read_text(path, VARIABLE, _HINT), str(path), _HINT)
    written = document.written.get("notify") if isinstance(document.written, dict) else None
    if isinstance(written, dict) and "waited" in written:
        written["waited"] = parse_seconds(str(written["waited"]), option=f"{path}: waited")
    return document.convert(_File).notify


def _checked(rules: NotifyRules, path: str) -> NotifyRules:
    mail = rules.mail
    wrong = ""
    if mail is not None and not (mail.host and "@" in mail.sender.strip("@") and mail.sender.isprintable()):
        wrong = "mail: it needs `host:` and `sender:`, an e-mail address"
    elif mail is not None and not 0 < mail.port < 65536:
        wrong = f"mail: port {mail.port} is none"
    elif mail is not None and mail.user and mail.tls == "none" and mail.host not in _HERE:
        wrong = "mail: a login with `tls: none` would send the password in plain text"
    elif mail is not None and mail.password_file and not mail.user:
        wrong = "mail: a password_file without a user"
    elif any("/" in host or "@" in host or not host for host in rules.webhooks.hosts):
        wrong = "webhooks: hosts are names such as hooks.slack.com or chat.example.org:8443, without https://"
    elif rules.webhooks.proxy and (
        urlsplit(rules.webhooks.proxy).scheme not in ("http", "https") or "@" in rules.webhooks.proxy
    ):
        wrong = "webhooks: proxy is not of the form http://host:port"
    elif rules.link and not rules.link.startswith(("https://", "http://")):
        wrong = "link: it is no address that begins with https://"
    if wrong:
        raise OptionError(f"{path}: notify: {wrong}", hint=_HINT)
    return rules


def _password_file(mail: MailRules, home: HomePaths, environment: Mapping[str, str]) -> str:
    path = Path(mail.password_file).expanduser() if mail.password_file else home.root / "smtp-password"
    if not mail.password_file and environment.get(PASSWORD):
        write_secret(path, environment[PASSWORD])
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise OptionError(
            f"{VARIABLE}: no password for {mail.user} at {mail.host}: {path}: {error.strerror}",
            hint=f"name its file as `password_file:`, or set {PASSWORD} for `jupyter gpu start`",
        ) from error
    if mode & 0o077 or not os.access(path, os.R_OK):
        raise OptionError(f"{path} may be read by others, or not by you (mode {mode:04o})", hint=f"chmod 600 {path}")
    return str(path)
