"""The choice of a gateway and a token; errors for a gateway that cannot be reached."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from ..errors import AuthenticationError, GatewayUnavailableError, GpuReleaseError, WrongAddressError, from_code
from ..host.certificates import certificate_fault, client_context
from .home import Connection, HomePaths, read_secret

#: in a JupyterHub's servers and their kernels: where the server asks for its user's token, which it renews
HUB_SERVICE = "JUPYTER_GPU_HUB_SERVICE"
_Kind = TypeVar("_Kind", bound=BaseException)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Target:
    """A gateway. ``configured``: somebody named it, so nothing else may stand in for it when it is down."""

    url: str
    token: str = field(repr=False)
    configured: bool = False
    store: str = ""
    embedded: bool = False
    simulated: bool = False
    connection: Connection | None = None
    #: PEM file with authorities that are trusted besides this machine's own
    ca_file: str = ""
    #: file of the gateway's own certificate, which alone is trusted then
    own_certificate: str = ""
    #: file that the token was read from
    token_file: str = ""
    #: somebody puts a new token into that file when the old one has ended
    is_renewed: bool = False

    def with_current_token(self) -> Target:
        """The same gateway, with the token that the file holds now; itself where there is no other."""
        with contextlib.suppress(AuthenticationError):
            if self.token_file and (token := read_secret(Path(self.token_file))) != self.token:
                return replace(self, token=token)
        return self

    def is_renewal_of(self, other: Target) -> bool:
        """Tell if it differs from ``other`` in nothing but its cluster's head, or a token that the same file holds."""
        own, earlier = self.connection, other.connection
        if own is not None and earlier is not None and own.cluster == earlier.cluster:
            other = replace(other, connection=own)
        return (replace(other, token=self.token) if self.token_file else other) == self

    def tls(self) -> ssl.SSLContext | None:
        """Settings for TLS, None where the gateway speaks plain text; raises :class:`OptionError` for a bad file."""
        if not self.url.startswith("https:"):
            return None
        return client_context(self.ca_file, self.own_certificate)

    @property
    def is_loopback(self) -> bool:
        """Tell if the gateway is on this machine (then no proxy is asked)."""
        return (urlsplit(self.url).hostname or "") in _LOOPBACK


def find_gateway(
    url: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    store: str | None = None,
    *,
    ca_file: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Target | None:
    """Find the gateway: arguments (traits), then ``JUPYTER_GPU_URL`` / ``_TOKEN`` / ``_TOKEN_FILE`` / ``_STORE`` /
    ``_CA_FILE``, then the connection file of this machine's own cluster.

    Returns None when none is named and no embedded cluster is known here.

    Raises
    ------
    AuthenticationError
        A configured gateway without a token, or a token file that others may read.
    GatewayUnavailableError
        The URL is not one, or the connection file is damaged.
    """
    env = os.environ if environment is None else environment
    named = url or env.get("JUPYTER_GPU_URL") or ""
    home = HomePaths.from_environment(env)
    secret, source = _given_token(token, token_file, env)
    chosen_store = store or env.get("JUPYTER_GPU_STORE") or ""
    if named:
        authorities = os.path.expanduser(ca_file or env.get("JUPYTER_GPU_CA_FILE") or "")
        found = _configured(_checked_url(named), secret, chosen_store, home)
        return replace(found, ca_file=authorities, token_file=source, is_renewed=bool(source and env.get(HUB_SERVICE)))
    connection = home.read_connection()
    return None if connection is None else target_of(connection, chosen_store)


def _given_token(token: str | None, token_file: str | None, env: Mapping[str, str]) -> tuple[str, str]:
    """The token, and the file that it was read from."""
    given = token or ("" if token_file else env.get("JUPYTER_GPU_TOKEN", "").strip())
    if given:
        return given, ""
    named = token_file or env.get("JUPYTER_GPU_TOKEN_FILE")
    file = Path(named).expanduser() if named else None
    return (read_secret(file), str(file)) if file is not None else ("", "")


def _configured(url: str, secret: str, store: str, home: HomePaths) -> Target:
    own = home.read_connection()
    if own is not None and own.url.rstrip("/") == url:
        found = target_of(own, store)
        return replace(found, url=url, token=secret or found.token, configured=True)
    if not secret:
        raise AuthenticationError(
            f"there is no token for the gateway {url}", hint="set JUPYTER_GPU_TOKEN or name a token file (mode 0600)"
        )
    return Target(url, secret, True, store)


def target_of(connection: Connection, store: str = "") -> Target:
    """The gateway that a connection file names; raises :class:`AuthenticationError` for its token."""
    secret = read_secret(Path(connection.token_file))
    url = connection.url.rstrip("/")
    return Target(
        url,
        secret,
        False,
        store or connection.store,
        connection.embedded,
        connection.simulated,
        connection,
        own_certificate=connection.tls_cert,
    )


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GatewayUnavailableError(
            f"{url!r} is not the address of a gateway", hint="write it like http://host:8765 (JUPYTER_GPU_URL)"
        )
    if parts.username or parts.password or parts.query:
        raise GatewayUnavailableError(
            "the gateway's URL holds a user name, a password or a query", hint="put the token into JUPYTER_GPU_TOKEN"
        )
    return url.rstrip("/")


def is_alive(target: Target) -> bool:
    """Tell if this machine's own cluster still runs (its daemon does); a configured gateway counts as alive."""
    connection = target.connection
    if target.configured or connection is None or not connection.daemon_pid:
        return True
    import psutil

    try:
        daemon = psutil.Process(connection.daemon_pid)
        same = abs(daemon.create_time() - connection.daemon_created) < 2.0 or not connection.daemon_created
        return same and daemon.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def has_ended(target: Target) -> bool:
    """Tell if this machine's own cluster is over for good; a pool that has lost its head may get another one."""
    connection = target.connection
    if connection is None or is_alive(target):
        return False
    try:
        named = HomePaths(Path(connection.token_file).parent).read_connection()
    except GatewayUnavailableError:
        named = None
    return not connection.host or named is None or named.cluster != connection.cluster


def has_lost_head(target: Target) -> bool:
    """Tell if this home's pool has lost its head: its nodes and their runs continue, and `start` brings it back."""
    return target.connection is not None and not is_alive(target) and not has_ended(target)


#: of a pool that has lost its head
HEAD_LOST = "the head of this home's pool is lost; its nodes wait for it (head_grace), and the runs on them continue"
HEAD_MEND = "the same `jupyter gpu start --slurm FILE` brings it back; `jupyter gpu stop` ends these nodes and runs"
_OWN_MEND = "is it running? `jupyter gpu status` tells, `jupyter gpu start` starts this machine's own"
#: what OpenSSL calls an answer that is none
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
#: what a proxy says while the gateway behind it restarts
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


def unreachable(url: str, error: BaseException, *, configured: bool) -> GatewayUnavailableError:
    """The error for a connection that could not be made."""
    named = f" ({named_by()})" if configured else ""
    if (distrust := _first(ssl.SSLCertVerificationError, error)) is not None:
        said, mend = certificate_fault(distrust)
        return WrongAddressError(f"the gateway {url} is not to be trusted: {said}{named}", hint=mend)
    if (other := _other_scheme(url, error)) is not None:
        return WrongAddressError(f"the gateway {url} does not answer: {other[0]}{named}", hint=other[1])
    kind = WrongAddressError if _is_unknown_name(error) else GatewayUnavailableError
    mend = hint_for(configured=configured)
    if configured and url.startswith("http:") and _is_without_answer(error):
        mend = f"perhaps it speaks TLS: then write {url.replace('http:', 'https:', 1)}; else {mend}"
    return kind(f"the gateway {url} does not answer: {_reason(error)}{named}", hint=mend)


def _is_without_answer(error: BaseException) -> bool:
    """Tell if the connection was made and ended without a word, as a server does that wants TLS (or is killed)."""
    return any(isinstance(cause, EOFError) or type(cause).__name__ == "RemoteProtocolError" for cause in _causes(error))


def _other_scheme(url: str, error: BaseException) -> tuple[str, str] | None:
    """For TLS that is spoken to plain text: what it is, and what mends it."""
    tls = _first(ssl.SSLError, error)
    if tls is None or tls.reason not in _NO_TLS:
        return None
    return "it speaks no TLS", f"write the address with http://, not https:// ({urlsplit(url).netloc})"


def not_a_gateway(url: str, status: int, *, configured: bool) -> GatewayUnavailableError:
    """The error for an HTTP answer that no gateway gives."""
    kind = GatewayUnavailableError if status in _PASSING else WrongAddressError
    named = f" ({named_by()})" if configured else ""
    return kind(f"{url} answered with HTTP {status}: not a gateway?{named}", hint=hint_for(configured=configured))


def refusal_error(url: str, status: int, body: bytes | bytearray, *, configured: bool) -> GpuReleaseError:
    """The error in an HTTP answer of status 400 and above."""
    try:
        facts = msgspec.json.decode(body)["error"]
        return from_code(facts["code"], facts["message"], facts.get("mend", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        return not_a_gateway(url, status, configured=configured)


def named_by() -> str:
    """Name the source of a configured address (the environment goes before the files)."""
    named = "JUPYTER_GPU_URL" if os.environ.get("JUPYTER_GPU_URL") else "the configuration file (GpuRelease.url)"
    return f"the address is set by {named}"


def hint_for(*, configured: bool) -> str:
    """Starting a cluster here does not help while another gateway is named."""
    if not configured:
        return _OWN_MEND
    if os.environ.get("JUPYTER_GPU_URL"):
        own = "unset JUPYTER_GPU_URL"
    else:
        own = "take GpuRelease.url out of the configuration file"
    return f"check the address, ask whoever runs that gateway, or {own} to use this machine's own cluster"


def is_refused(error: GpuReleaseError) -> bool:
    """Tell if nobody listens there (a gateway that restarts looks like that for some seconds)."""
    return any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error))


def _is_unknown_name(error: BaseException) -> bool:
    missing = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
    return any(isinstance(cause, socket.gaierror) and cause.errno in missing for cause in _causes(error))


def _reason(error: BaseException) -> str:
    if any(isinstance(cause, socket.gaierror) for cause in _causes(error)):
        return f"its name is not resolved: {_words(error)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {_words(error)}"
    return _words(error)


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _first(kind: type[_Kind], error: BaseException) -> _Kind | None:
    return next((cause for cause in _causes(error) if isinstance(cause, kind)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
