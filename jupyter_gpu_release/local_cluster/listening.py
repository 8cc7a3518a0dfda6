"""Where and how a gateway listens: what of address, TLS and proxy is refused."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from ..errors import OptionError
from ..host.certificates import read_own
from ..protocol.config import Listening


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
