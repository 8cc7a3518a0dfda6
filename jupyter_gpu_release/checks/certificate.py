"""The gateway's certificate as this process sees it: whether it is trusted, for whom it is, and until when."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from ..client.discovery import Target
from ..errors import OptionError
from ..host.certificates import certificate_fault
from ..units import format_count
from .finding import Finding, broken, broken_by, note, ok

#: authorities take days, and people holidays
_NOTED_DAYS = 30
_DAY_S = 86400


def check_certificate(target: Target, now_s: float, patience_s: float) -> Iterator[Finding]:
    """Shake hands with the gateway, if it speaks TLS, as every client of this process would."""
    at = urlsplit(target.url)
    try:
        context = target.tls()
        if context is None:
            return
        with (
            socket.create_connection((at.hostname or "", at.port or 443), timeout=patience_s) as line,
            context.wrap_socket(line, server_hostname=at.hostname) as tls,
        ):
            ends_at = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
    except OptionError as error:
        yield broken_by("tls", error)
    except ssl.SSLCertVerificationError as error:
        said, mend = certificate_fault(error)
        yield broken("tls", f"of {at.netloc}: {said}", mend)
    except (OSError, KeyError) as error:  # behind a proxy of this machine, say
        mend = f"openssl s_client -connect {at.hostname}:{at.port or 443} shows it, where this machine gets there"
        yield note("tls", f"the gateway's certificate cannot be looked at: {error}", mend)
    else:
        yield check_end((ends_at - now_s) / _DAY_S)


def check_end(days_left: float) -> Finding:
    """The time that the gateway's certificate has left."""
    days = format_count(int(days_left), "day")
    if days_left < _NOTED_DAYS:
        mend = "renew it: put the new files in the place of the old ones"
        return note("tls", f"the gateway's certificate expires in {days}", mend)
    return ok("tls", f"the gateway's certificate is good for {days}")
