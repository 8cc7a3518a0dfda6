"""A gateway that cannot be reached: what failed, who named its address, what mends it."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator

from ..errors import GatewayUnavailableError, GpuReleaseError

_OWN_MEND = "is it running? `jupyter gpu status` tells, `jupyter gpu start` starts this machine's own"
#: what a proxy says while the gateway behind it restarts
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class WrongAddressError(GatewayUnavailableError):
    """Trying again cannot help: the name does not exist, or something else than a gateway lives there."""


def unreachable(url: str, error: BaseException, *, configured: bool) -> GatewayUnavailableError:
    """The error for a connection that could not be made."""
    kind = WrongAddressError if _is_unknown_name(error) else GatewayUnavailableError
    named = f" ({named_by()})" if configured else ""
    return kind(f"the gateway {url} does not answer: {_reason(error)}{named}", mend=mend_for(configured=configured))


def not_a_gateway(url: str, status: int, *, configured: bool) -> GatewayUnavailableError:
    """The error for an HTTP answer that no gateway gives."""
    kind = GatewayUnavailableError if status in _PASSING else WrongAddressError
    named = f" ({named_by()})" if configured else ""
    return kind(f"{url} answered with HTTP {status}: not a gateway?{named}", mend=mend_for(configured=configured))


def named_by() -> str:
    """Where a configured address comes from (the environment goes before the files)."""
    named = "JUPYTER_GPU_URL" if os.environ.get("JUPYTER_GPU_URL") else "the configuration file (GpuRelease.url)"
    return f"the address is set by {named}"


def mend_for(*, configured: bool) -> str:
    """Starting a cluster here does not help while another gateway is named."""
    if not configured:
        return _OWN_MEND
    if os.environ.get("JUPYTER_GPU_URL"):
        own = "unset JUPYTER_GPU_URL"
    else:
        own = "take GpuRelease.url out of the configuration file"
    return f"check the address, ask whoever runs that gateway, or {own} to use this machine's own cluster"


def is_refused(error: GpuReleaseError) -> bool:
    """Whether nobody listens there (a gateway that restarts looks like that for some seconds)."""
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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
