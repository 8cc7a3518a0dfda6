"""Ways between hosts: their names, their ports, and whether a firewall drops what is sent or refuses it."""

from __future__ import annotations

import ipaddress
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from ..protocol.node import NameLookup
from ..protocol.rest import NodeChecks
from ..units import format_count
from .finding import Finding, broken, note, ok

#: a host on a network of this size answers within milliseconds
PORT_S = 3.0
_MOST_NAMED = 4


def answer_of(error: OSError) -> tuple[str, str]:
    """The kind of a connection's failure (:class:`.PortTry`), and the reason in words."""
    if isinstance(error, ConnectionRefusedError):
        return "refused", ""
    if isinstance(error, TimeoutError):
        return "silent", ""
    return "unreachable", error.strerror or str(error)


def look_up(name: NameLookup) -> NameLookup:
    """Ask the resolver of this host for a name; blocks as long as that does."""
    try:
        found = socket.getaddrinfo(name.name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return msgspec.structs.replace(name, problem=getattr(error, "strerror", None) or str(error))
    return msgspec.structs.replace(name, found=sorted({str(address[0]) for *_kind, address in found}))


def check_network(url: str, patience_s: float) -> Finding:
    """The way to a gateway that does not answer: its name, its host, its port."""
    at = urlsplit(url)
    host, port = at.hostname or "", at.port or (443 if at.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        mend = f"an entry in DNS or in /etc/hosts; `getent hosts {host}` shows what is known"
        return broken("network", f"no address is known for {host}: {error.strerror}", mend)
    addresses = sorted({str(address[0]) for *_kind, address in found})
    where = f"port {port} of {host}" + ("" if addresses == [host] else f" ({', '.join(addresses)})")
    try:
        socket.create_connection((host, port), timeout=patience_s).close()
    except OSError as error:
        answer, reason = answer_of(error)
        if answer == "refused":
            mend = "is the gateway up, and at this port? For other hosts: `start --host --port`. "
            mend += "Some firewalls refuse, too"
            return broken("network", f"{where} is reached, and nothing listens there", mend)
        why = f"gives no answer within {patience_s:g} s" if answer == "silent" else f"is not reached: {reason}"
        mend = f"is a firewall or a VPN in between? Allow TCP port {port} from here to there"
        return broken("network", f"{where} {why}", mend)
    return ok("network", f"{where} is reached")


def check_ports(checks: NodeChecks) -> Iterator[Finding]:
    """The ports that the nodes need of each other; a finding for each host of which one does not answer."""
    tried = [(node.host, port) for node in checks.nodes if node.probe is not None for port in node.probe.ports]
    failed: dict[tuple[str, str, str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for host, port in tried:
        if port.answer != "open":
            kind = port.host, port.address, port.answer, port.reason
            failed[kind][f"{port.port} ({port.what})"].add(host)
    for (host, address, answer, reason), ports in failed.items():
        yield _unreached(host, address, answer, reason, ports)
    if tried and not failed:
        hosts = format_count(len({host for host, _ in tried}), "node")
        yield ok("network", f"{hosts} reach each other's ports, those of Ray and of the node agents")


def _unreached(host: str, address: str, answer: str, reason: str, ports: dict[str, set[str]]) -> Finding:
    those = _listed(list(ports))
    said = f"{host} ({address}), port {those}, from {_listed(sorted(set().union(*ports.values())))}"
    if answer == "refused":
        mend = (
            f"on {host}: does `ss -ltn` show it? Then a firewall refuses it: allow TCP between the nodes; else restart "
            "Ray there"
        )
        return broken("network", f"{said}: refused, nothing listens there or a firewall rejects it", mend, where=host)
    if answer == "silent":
        mend = f"a firewall drops it, perhaps that of {host}: allow all TCP ports between nodes (Ray and gangs use any)"
        return broken("network", f"{said}: no answer within {PORT_S:g} s", mend, where=host)
    mend = f"a route or a firewall is in the way: `ip route get {address}` there shows it; is the address right?"
    return broken("network", f"{said}: not reached: {reason}", mend, where=host)


def check_names(checks: NodeChecks) -> Iterator[Finding]:
    """The nodes' names: known to each other, and by the addresses at which the nodes are reached."""
    asked = [(node.host, name) for node in checks.nodes if node.probe is not None for name in node.probe.names]
    told: dict[tuple[str, str, tuple[str, ...], str], list[str]] = defaultdict(list)
    for where, name in asked:
        if name.problem or name.address not in name.found:
            told[name.name, name.address, tuple(name.found), name.problem].append(where)
    for (text, address, found, problem), places in told.items():
        yield _misnamed(NameLookup(text, address, list(found), problem), places)
    if asked and not told:
        yield ok("dns", f"the names of {format_count(len({name.name for _, name in asked}), 'node')} are known to all")


def _misnamed(name: NameLookup, places: list[str]) -> Finding:
    mend = f"an entry for `{name.address} {name.name}` in DNS, or in /etc/hosts of each host"
    on = _listed(sorted(places))
    if name.problem:
        said = f"the name {name.name} is not known on {on}: {name.problem}; libraries that go by names fail"
        return note("dns", said, mend, where=name.name)
    said = f"the name {name.name} stands for {', '.join(name.found)} on {on}, and Ray reaches it at {name.address}"
    if all(_is_loopback(address) for address in name.found):
        mend = f"take the name off the line of {name.found[0]} in /etc/hosts there; {mend}"
    return note("dns", said, mend, where=name.name)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _listed(texts: Iterable[str]) -> str:
    """``a, b and 3 more``."""
    named = list(texts)
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more
