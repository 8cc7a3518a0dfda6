"""TLS certificates: the gateway's own, those that a client trusts, and what is wrong with one, in words."""

from __future__ import annotations

import functools
import os
import re
import ssl
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..errors import OptionError

#: OpenSSL's codes (X509_V_ERR_…)
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUERS = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})
_DAY_S = 86400


@dataclass(frozen=True)
class Certificate:
    """A server's certificate: the names and addresses that it is for, and its last moment (seconds since 1970)."""

    names: tuple[str, ...]
    ends_at_s: float

    def days_left(self, now_s: float) -> float:
        """Days for which it is still valid; negative: expired."""
        return (self.ends_at_s - now_s) / _DAY_S

    def is_for(self, host: str) -> bool:
        """Tell if clients that call the server ``host`` accept it."""
        above = host.partition(".")[2]
        return any(name.lower() in (host.lower(), f"*.{above}".lower()) for name in self.names)


def gateway_context(certificate: str, key: str) -> ssl.SSLContext:
    """Settings with which a gateway serves TLS; raises :class:`OptionError` naming the file and its fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_own(context, certificate, key)
    return context


class OwnCertificate:
    """The gateway's certificate and key: served, and served anew when their files were replaced."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raise :class:`OptionError` as :func:`read_own` does."""
        self._files = certificate, key
        self._stamps = self._read_stamps()
        read_own(certificate, key)
        self.context = gateway_context(certificate, key)

    def renew(self) -> bool:
        """Take renewed files, if they are; tells whether. Raises :class:`OptionError`, once, and keeps the old ones."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        read_own(*self._files)
        load_own(self.context, *self._files)
        return True

    def _read_stamps(self) -> list[int]:
        return [_stamp(path) for path in self._files]


def load_own(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Take certificate and key from their files, in place of earlier ones; connections that are open keep theirs.

    Raises :class:`OptionError`, and then nothing has changed, or the next connections fail.
    """
    _check_key_file(key)
    passphrase = _Passphrase()
    try:
        context.load_cert_chain(certificate, key, password=passphrase)
    except FileNotFoundError as error:
        missing = certificate if not Path(certificate).exists() else key
        raise OptionError(
            f"{missing}: {error.strerror}", hint="name PEM files with --tls-cert and --tls-key"
        ) from error
    except ssl.SSLError as error:
        raise _load_fault(certificate, key, error, passphrase.is_wanted) from error
    except OSError as error:
        raise OptionError(
            f"cannot read {certificate} and {key}: {error.strerror}", hint="its reader is the gateway's user"
        ) from error


class _Passphrase:
    """Notes that one is wanted, in place of OpenSSL's question on the terminal."""

    is_wanted = False

    def __call__(self) -> str:
        self.is_wanted = True
        return ""


def _check_key_file(key: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(key).st_mode)
    except OSError as error:
        raise OptionError(f"cannot read the key {key}: {error.strerror}", hint="name it with --tls-key") from error
    if mode & 0o037:  # 0640 is what Debian's group ssl-cert reads
        raise OptionError(f"the key {key} may be read by others (mode {mode:04o})", hint=f"chmod 600 {key}")


def _load_fault(certificate: str, key: str, error: ssl.SSLError, has_passphrase: bool) -> OptionError:
    if error.reason == "KEY_VALUES_MISMATCH":
        said, mend = f"the key {key} does not belong to the certificate {certificate}", "name two that belong together"
    elif has_passphrase:
        said, mend = f"the key {key} has a passphrase", f"take it off: openssl pkey -in {key} -out NEW.pem"
    else:
        said, mend = f"{certificate} and {key} are no certificate and key", "PEM files are wanted"
    return OptionError(said, hint=mend)


def read_own(certificate: str, key: str) -> Certificate:
    """The gateway's own certificate, tried in a handshake without a network.

    Raises
    ------
    OptionError
        A file cannot be read, the two do not belong together, or the certificate is not valid now.
    """
    server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = gateway_context(certificate, key).wrap_bio(client, server, server_side=True)
    asking = pinned_context(certificate).wrap_bio(server, client)
    try:
        for side in (asking, serving, asking, serving, asking):
            _step(side)
    except ssl.SSLCertVerificationError as error:
        said, mend = certificate_fault(error)
        mend = "have it renewed, and name the new file with --tls-cert" if error.verify_code == _EXPIRED else mend
        raise OptionError(f"{certificate}: {said}", hint=mend) from error
    facts = asking.getpeercert() or {}
    alternatives = cast("tuple[tuple[str, str], ...]", facts.get("subjectAltName", ()))
    names = tuple(name for kind, name in alternatives if kind in ("DNS", "IP Address"))
    return Certificate(names, float(ssl.cert_time_to_seconds(str(facts["notAfter"]))))


def _step(side: ssl.SSLObject) -> None:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return


def pinned_context(certificate: str) -> ssl.SSLContext:
    """Trust in exactly this certificate, whatever names it is for: for clients that can read the gateway's own file.

    Only the file's first certificate is trusted: the others signed it, and sign for everybody.
    Raises :class:`OptionError` when it cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, certificate, only_first=True)
    return context


def client_context(authorities: str = "", own: str = "") -> ssl.SSLContext:
    """Trust of a client: this machine's authorities and those in the file ``authorities``.

    ``own``: the file of the gateway's own certificate, if this machine has it, or its text; then that one alone is
    trusted. Raises :class:`OptionError` for a file that cannot be read.
    """
    path = own or authorities
    return _client_context(authorities, own, _stamp(path) if path and not _is_text(path) else 0)


def _is_text(certificate: str) -> bool:
    """Tell if it is the certificate itself, and no file."""
    return "-----BEGIN" in certificate


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError as error:
        raise OptionError(f"cannot read the certificates {path}: {error.strerror}", hint=_AUTHORITIES) from error


@functools.lru_cache(maxsize=8)
def _client_context(authorities: str, own: str, stamp: int) -> ssl.SSLContext:
    """``stamp``: a file that was replaced is read again."""
    if own:
        return pinned_context(own)
    context = ssl.create_default_context()
    if authorities:
        _trust(context, authorities)
    return context


def _trust(context: ssl.SSLContext, path: str, *, only_first: bool = False) -> None:
    try:
        if only_first:
            context.load_verify_locations(cadata=first_certificate(path))
        else:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise OptionError(
            f"{path} holds no certificate: {error.reason or error}", hint="a PEM file is wanted"
        ) from error
    except OSError as error:
        raise OptionError(f"cannot read the certificates {path}: {error.strerror}", hint=_AUTHORITIES) from error


def first_certificate(path: str) -> str:
    """The first certificate of a file, or of a text, and nothing else of it: there may be a key."""
    text = path if _is_text(path) else Path(path).read_text(encoding="ascii", errors="replace")
    found = _CERTIFICATE.search(text)
    if found is None:
        raise ssl.SSLError(0, "no PEM block of a certificate")
    return found.group()


_CERTIFICATE = re.compile(r"-----BEGIN ([A-Z0-9 ]*)CERTIFICATE-----.+?-----END \1CERTIFICATE-----", re.DOTALL)
_AUTHORITIES = "check JUPYTER_GPU_CA_FILE (or c.GpuRelease.ca_file)"


def certificate_fault(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    """The fault of the other side's certificate, and what mends it."""
    today = time.strftime("%F %H:%M", time.gmtime())
    code = error.verify_code
    if code == _EXPIRED:
        return f"the certificate has expired (here it is {today} UTC)", "whoever runs that gateway has to renew it"
    if code == _NOT_YET_VALID:
        return (
            f"the certificate is not valid yet (here it is {today} UTC)",
            "set the clock of this machine, or of theirs",
        )
    if code in _OTHER_NAME:
        return (
            f"the certificate is for another host ({error.verify_message.rstrip('.')})",
            "use a name that the certificate has, or have one made for this name",
        )
    if code in _UNKNOWN_ISSUERS:
        return (
            "nobody whom this machine trusts has signed its certificate",
            "ask its operator for the authority's certificate (of a self-signed one: itself), and name that file in "
            "JUPYTER_GPU_CA_FILE (or c.GpuRelease.ca_file)",
        )
    return f"the certificate is refused: {error.verify_message}", "ask whoever runs that gateway"
