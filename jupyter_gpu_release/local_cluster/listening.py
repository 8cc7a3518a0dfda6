"""Where and how a gateway listens: address, TLS, a proxy in front of it; what of that is refused."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import OptionError
from ..host.certificates import read_own

DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Listening:
    """The options of ``start`` about the gateway's address; :data:`DEFAULT_HOST`, 0 and empty texts leave it open."""

    host: str = DEFAULT_HOST
    port: int = 0
    tls_cert: str = ""
    tls_key: str = ""
    #: address that a proxy in front of it has, such as ``https://gpu.example.org/team``
    proxy_url: str = ""
    allow_plain_text: bool = False

    @classmethod
    def of(
        cls, host: str, port: int, tls_cert: str | None, tls_key: str | None, proxy_url: str | None, plain_text: bool
    ) -> Listening:
        """The options as they were written, with absolute paths; raises :class:`OptionError` for what cannot be."""
        cert, key = (str(Path(name).expanduser().absolute()) if name else "" for name in (tls_cert, tls_key))
        made = cls(host, port, cert, key, (proxy_url or "").rstrip("/"), plain_text)
        made.check()
        return made

    def check(self) -> None:
        """Raise :class:`OptionError` for half a certificate, one that is not valid, or plain text for everybody."""
        if bool(self.tls_cert) != bool(self.tls_key):
            given, other = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise OptionError(f"{given} without {other}", hint=f"add {other} FILE")
        if self.tls_cert:
            read_own(self.tls_cert, self.tls_key)
        self._check_proxy()
        if not (self.tls_cert or self.allow_plain_text or is_loopback(self.host)):
            raise OptionError(
                f"--host {self.host}: without TLS, tokens, code and results could be read on the way",
                hint="add --tls-cert FILE --tls-key FILE; in a network that you trust: --allow-plain-text",
            )

    def _check_proxy(self) -> None:
        parts = urlsplit(self.proxy_url)
        is_address = parts.scheme in ("http", "https") and parts.hostname
        if self.proxy_url and (not is_address or parts.query or parts.fragment or parts.username):
            raise OptionError(
                f"--proxy-url {self.proxy_url}: not an address", hint="write it like https://gpu.example.org/team"
            )
        if parts.scheme == "http" and not (self.allow_plain_text or is_loopback(parts.hostname or "")):
            raise OptionError(
                f"--proxy-url {self.proxy_url}: without TLS, tokens, code and results could be read on the way",
                hint="have the proxy speak https; in a network that you trust: --allow-plain-text",
            )


LOCAL = Listening()


def is_loopback(host: str) -> bool:
    """Tell if only this machine reaches an address or name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
