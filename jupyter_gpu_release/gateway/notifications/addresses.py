"""Addresses that users give for notifications: which are taken, and which a webhook may lead to. Pure."""

from __future__ import annotations

import ipaddress
import re
from email.utils import parseaddr
from typing import TYPE_CHECKING

from ...errors import OptionError
from ...protocol.config import NotifyRules, WebhookRules

if TYPE_CHECKING:
    import httpx  # most gateways tell no webhooks, and it takes 0.1 s of every one's start

_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@([A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*)")
_OPERATOR = "its operator can: `jupyter gpu docs operate/notify`"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_email(address: str, rules: NotifyRules) -> str:
    """The address, once it may be written to; raises :class:`OptionError`."""
    if rules.mail is None:
        raise OptionError("this cluster sends no mail", hint=_OPERATOR)
    match = _EMAIL.fullmatch(address)
    if match is None or len(address) > 200:
        raise OptionError(
            f"{address[:80]!r} is not an e-mail address", hint="write one address, such as ann@example.org"
        )
    domains = [domain.lower() for domain in rules.mail.domains] or [domain_of(rules.mail.sender)]
    if "*" not in domains and match[1].lower() not in domains:
        raise OptionError(f"this cluster sends no mail to {match[1]}", hint=f"only to {', '.join(domains)}")
    return address


def domain_of(address: str) -> str:
    """The domain of ``gpu@example.org`` or ``GPUs <gpu@example.org>``."""
    return parseaddr(address)[1].rpartition("@")[2].lower()


def check_webhook(address: str, rules: WebhookRules) -> httpx.URL:
    """The webhook's URL, once it may be asked; raises :class:`OptionError`, in which no more of it is than its host."""
    if not rules.hosts:
        raise OptionError("this cluster tells no webhooks", hint=_OPERATOR)
    import httpx

    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):  # its message quotes the address
        raise OptionError("the webhook is not a URL", hint="copy it whole, from https:// on") from None
    if url.scheme not in ("https", "http") or not url.host or url.userinfo or not address.isprintable():
        raise OptionError("the webhook is not a URL of the form https://host/path", hint="copy it whole")
    if url.scheme == "http" and not rules.plain_http:
        raise OptionError("the webhook begins with http://, without encryption", hint="use the one with https://")
    if _place(url) not in {_place(httpx.URL(f"{url.scheme}://{host}")) for host in rules.hosts}:
        raise OptionError(
            f"this cluster tells no webhooks on {url.host}", hint=f"only on {', '.join(rules.hosts)}; {_OPERATOR}"
        )
    return url


def shown_webhook(address: str) -> str:
    """The part of a webhook that is no secret: its host."""
    if not address:
        return ""
    import httpx

    return httpx.URL(address).host


def is_public(address: str) -> bool:
    """Tell if an IP address is of the open internet, and leads to no other one within it."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found.sixtofour is not None or found.teredo is not None or found in _NAT64:
            return False
    return found.is_global and not found.is_multicast


def port_of(url: httpx.URL) -> int:
    """The port that a URL means."""
    return url.port or (443 if url.scheme == "https" else 80)


def _place(url: httpx.URL) -> str:
    return f"{url.host.lower()}:{port_of(url)}"
