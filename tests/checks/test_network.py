"""Names, ports and firewalls: between hosts of their own, and as nodes tell of them."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import sys
from collections.abc import Iterator

import msgspec
import pytest
from network_hosts import Network

from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK
from jupyter_gpu_release.checks.network import check_names, check_network, check_ports
from jupyter_gpu_release.protocol.node import NameLookup, PortTry, ProbeReport
from jupyter_gpu_release.protocol.rest import NodeCheck, NodeChecks


def test_the_way_to_a_gateway_is_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reached = check_network(f"http://127.0.0.1:{port}", 5)
    assert (reached.level, reached.finding) == (OK, f"port {port} of 127.0.0.1 is reached")
    refused = check_network(f"http://127.0.0.1:{port}", 5)
    assert (refused.level, refused.finding) == (
        BROKEN,
        f"port {port} of 127.0.0.1 is reached, and nothing listens there",
    )
    unknown = check_network("https://gateway.invalid", 5)
    assert unknown.finding.startswith("no address is known for gateway.invalid: ")
    assert "getent hosts gateway.invalid" in unknown.hint


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("one", "two") as network:
        yield network


_PROBE = """
import asyncio, msgspec, sys
from jupyter_gpu_release.node.agent.probe import probe
from jupyter_gpu_release.protocol.node import ProbeOrder
order = msgspec.json.decode(sys.argv[1], type=ProbeOrder)
print(msgspec.json.encode(asyncio.run(probe(order))).decode())
"""


_LOOK = """
import shutil
import sys
from jupyter_gpu_release.checks.network import check_network
found = check_network(sys.argv[1], 2)
print(f"{found.level}: {found.finding}\\n{found.hint}")
"""


def _ask(network: Network, *ports: PortTry, names: tuple[NameLookup, ...] = ()) -> ProbeReport:
    """The report of the host ``one``."""
    order = json.dumps({"ports": msgspec.to_builtins(ports), "names": msgspec.to_builtins(names)})
    done = network["one"].output(sys.executable, "-c", _PROBE, order)
    return msgspec.json.decode(done, type=ProbeReport)


@pytest.fixture
def listening(network: Network) -> Iterator[PortTry]:
    """A port of the host ``two``."""
    with network["two"].listening() as port:
        yield PortTry("two", network["two"].address, port, "Ray's node manager")


def test_a_port_that_is_open_and_one_where_nobody_listens(network: Network, listening: PortTry) -> None:
    closed = msgspec.structs.replace(listening, port=9)
    report = _ask(network, listening, closed)
    assert report.shared_bytes == shutil.disk_usage("/dev/shm").total
    assert report.open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    opened, refused = report.ports
    assert (opened.answer, refused.answer) == ("open", "refused")
    (finding,) = check_ports(NodeChecks(1, "/store", [NodeCheck("one", probe=ProbeReport([opened, refused]))]))
    assert (finding.level, finding.where) == (BROKEN, "two")
    assert "port 9 (Ray's node manager), from one: refused" in finding.finding
    assert "ss -ltn" in finding.hint


def test_a_firewall_that_drops_is_told_from_one_that_lets_nobody_out(network: Network, listening: PortTry) -> None:
    """No answer comes back from ``two``; then ``one`` may not send there at all."""
    here, there = network["one"], network["two"]
    there.run("ip", "route", "add", "blackhole", f"{here.address}/32")
    try:
        (dropped,) = _ask(network, listening).ports
        way = here.output(sys.executable, "-c", _LOOK, f"http://{there.address}:{listening.port}").split("\n")
    finally:
        there.run("ip", "route", "del", "blackhole", f"{here.address}/32")
    here.run("ip", "route", "add", "unreachable", f"{there.address}/32")
    try:
        (no_way,) = _ask(network, listening).ports
    finally:
        here.run("ip", "route", "del", "unreachable", f"{there.address}/32")
    assert (dropped.answer, no_way.answer) == ("silent", "unreachable")
    assert way[0] == f"broken: port {listening.port} of {there.address} gives no answer within 2 s"
    assert f"Allow TCP port {listening.port}" in way[1]
    silent, unreachable = check_ports(NodeChecks(1, "/", [NodeCheck("one", probe=ProbeReport([dropped, no_way]))]))
    assert "no answer within 3 s" in silent.finding
    assert "firewall drops it" in silent.hint
    assert "not reached: No route to host" in unreachable.finding
    assert "ip route get" in unreachable.hint
    (again,) = _ask(network, listening).ports
    assert again.answer == "open"


def test_a_name_is_known_or_not(network: Network) -> None:
    asked = (NameLookup("localhost", "127.0.0.1"), NameLookup("two", network["two"].address))
    known, unknown = _ask(network, names=asked).names
    assert "127.0.0.1" in known.found
    assert unknown.problem
    assert not unknown.found


def test_names_that_stand_for_other_addresses_are_noted() -> None:
    right = NameLookup("gpu-02", "10.0.0.2", found=["10.0.0.2"])
    own = NameLookup("gpu-01", "10.0.0.1", found=["127.0.1.1"])
    lost = NameLookup("gpu-02", "10.0.0.2", problem="Name or service not known")
    known = {"gpu-01": [own, right], "gpu-02": [right], "gpu-03": [lost], "gpu-04": [lost]}
    nodes = [NodeCheck(host, probe=ProbeReport(names=names)) for host, names in known.items()]
    other, unknown = check_names(NodeChecks(1, "/store", nodes))
    assert (other.level, unknown.level) == (NOTE, NOTE)
    assert "gpu-01 stands for 127.0.1.1 on gpu-01, and Ray reaches it at 10.0.0.1" in other.finding
    assert "take the name off the line of 127.0.1.1" in other.hint
    assert "gpu-02 is not known on gpu-03, gpu-04" in unknown.finding
    assert "10.0.0.2 gpu-02" in unknown.hint
    (fine,) = check_names(NodeChecks(1, "/store", nodes[1:2]))
    assert fine.level == OK
    assert not list(check_names(NodeChecks(1, "/store", [NodeCheck("alone", probe=ProbeReport())])))


def test_a_port_that_does_not_answer_is_said_with_the_reason() -> None:
    hosts = [f"n{number}" for number in range(6)]

    def tried(answer: str, reason: str = "") -> NodeChecks:
        port = PortTry("far", "10.0.0.9", 7, "Ray", answer, reason)
        return NodeChecks(1, "/store", [NodeCheck(host, probe=ProbeReport(ports=[port])) for host in hosts])

    words = {
        "refused": ("refused, nothing listens there", "`ss -ltn`"),
        "silent": ("no answer within 3 s", "allow all TCP ports"),
        "unreachable": ("not reached: no route", "ip route get 10.0.0.9"),
    }
    for answer, (said, mend) in words.items():
        (found,) = check_ports(tried(answer, "no route"))
        assert found.finding.startswith("far (10.0.0.9), port 7 (Ray), from n0, n1, n2, n3 and 2 more: ")
        assert (said in found.finding, mend in found.hint, found.where) == (True, True, "far")
    hosts = hosts[:4]
    assert "from n0, n1, n2, n3: " in next(iter(check_ports(tried("silent")))).finding
