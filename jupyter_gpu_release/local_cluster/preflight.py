"""Checks before a start: address, TLS and proxy of the gateway, store, files of queues and environments."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ..client.home import HomePaths
from ..environments.named import read_environments
from ..errors import OptionError, StoreError
from ..host.certificates import read_own
from ..protocol.config import Listening
from ..scheduling.queues.queues_file import QueuesFile, parse_queues
from ..settings.setting import read_text
from ..store.identity import FILE, check_identity, expect_store
from ..store.run_folders import make_store, probe_store


def check_listening(asked: Listening, *, allow_plain_text: bool) -> None:
    """Raise :class:`OptionError` for half a certificate, one that is not valid, or plain text for everybody."""
    if bool(asked.tls_cert) != bool(asked.tls_key):
        given, other = ("--tls-cert", "--tls-key") if asked.tls_cert else ("--tls-key", "--tls-cert")
        raise OptionError(f"{given} without {other}", hint=f"add {other} FILE")
    if asked.tls_cert:
        read_own(asked.tls_cert, asked.tls_key)
    _check_proxy(asked.proxy_url, allow_plain_text=allow_plain_text)
    if not (asked.tls_cert or allow_plain_text or is_loopback(asked.host)):
        raise OptionError(
            f"--host {asked.host}: without TLS, tokens, code and results could be read on the way",
            hint="add --tls-cert FILE --tls-key FILE; in a network that you trust: --allow-plain-text",
        )


def address_for_others(asked: Listening, own_name: str) -> str:
    """The address to tell to others: the proxy's, or a name of the certificate that ``own_name`` is not one of.

    Empty: the gateway's own will do.
    """
    if asked.proxy_url or not (asked.tls_cert and asked.port) or is_loopback(asked.host):
        return asked.proxy_url
    certificate = read_own(asked.tls_cert, asked.tls_key)
    whole = [name for name in certificate.names if "*" not in name]
    if not whole or certificate.is_for(own_name if asked.host in ("0.0.0.0", "::") else asked.host):
        return ""
    return f"https://{f'[{whole[0]}]' if ':' in whole[0] else whole[0]}:{asked.port}"


def _check_proxy(url: str, *, allow_plain_text: bool) -> None:
    parts = urlsplit(url)
    is_address = parts.scheme in ("http", "https") and parts.hostname
    if url and (not is_address or parts.query or parts.fragment or parts.username):
        raise OptionError(f"--proxy-url {url}: not an address", hint="write it like https://gpu.example.org/team")
    if parts.scheme == "http" and not (allow_plain_text or is_loopback(parts.hostname or "")):
        raise OptionError(
            f"--proxy-url {url}: without TLS, tokens, code and results could be read on the way",
            hint="have the proxy speak https; in a network that you trust: --allow-plain-text",
        )


def is_loopback(host: str) -> bool:
    """Tell if only this machine reaches an address or name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _LastStart(msgspec.Struct):
    store: str = ""
    store_id: str = ""


def expect_last(home: HomePaths, folder: Path) -> None:
    """Raise :class:`StoreError` when the cluster's last start used this store, and it is not there now.

    Not there: no folder ``runs/``, or another store (or a plain folder) in its place. An empty ``store.json`` accepts
    what lies there.
    """
    try:
        last = msgspec.json.decode(home.gateway_config.read_bytes(), type=_LastStart)
    except (OSError, msgspec.MsgspecError):
        return
    if last.store != str(folder) or _is_accepted(folder):
        return
    if not (folder / "runs").is_dir():
        raise StoreError(
            f"the store {folder} is not there; the last start of this cluster had it",
            hint="is it mounted? To begin anew with an empty one: "
            f"mkdir -p -m 700 '{folder}/runs' && : > '{folder}/{FILE}'",
        )
    check_identity(folder, last.store_id)


def _is_accepted(folder: Path) -> bool:
    try:
        return (folder / "runs").is_dir() and (folder / FILE).stat().st_size == 0
    except OSError:
        return False


def begin_store(home: HomePaths, folder: Path) -> str:
    """Make the store where there was none, and try it; returns its id. Raises :class:`StoreError`."""
    expect_last(home, folder)
    ident = make_store(folder)
    expect_store(folder, ident)
    probe_store(folder)
    return ident


_HOST_HINT = "write an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"


def check_host(host: str, option: str = "--host", hint: str = _HOST_HINT) -> None:
    """Resolve ``host`` and bind a free port there; raises :class:`OptionError` naming the option."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{option} {host}: no such address ({reason})", hint=hint) from error
    family, kind, protocol, _, address = found[0]
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        raise OptionError(f"{option} {host}: nothing can listen there ({error.strerror})", hint=hint) from error


def check_named_environments(path: str) -> None:
    """Read the file of named environments, where it is here: a gateway may be on another machine, or it comes later.

    Raises :class:`OptionError` that names the line.
    """
    if path and Path(path).exists():
        read_environments(Path(path))


def read_queues(path: Path) -> QueuesFile:
    """Read a queues file; raises :class:`OptionError` that names the line."""
    return parse_queues(read_text(path, "--queues", "give a queues file that can be read"), str(path))
