"""Runs through a real gateway on a real Ray cluster: submitted, queued, granted, released, cancelled."""

from __future__ import annotations

import math
import sys

import msgspec
from feeds import Reading
from ray_bed import GPUS, GatewayBed, request

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.protocol.session import Accepted
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import read_manifest


def test_a_run_goes_through_its_states_and_gives_its_gpus_back(gateway: GatewayBed, open_session, until) -> None:
    session = open_session()
    asked = request("print 5\nvalues 1000", "session", gpus=2, name="first", notebook="a.ipynb")
    reading = Reading(session.submit(asked))
    end = reading.end()
    assert isinstance(reading.items[0], Accepted)
    states = [view.state for view in reading.views()]
    assert states[-1] == "succeeded"
    order = ["queued", "starting", "running", "releasing", "persisting", "succeeded"]
    assert [order.index(state) for state in states] == sorted(order.index(state) for state in states)
    assert reading.numbers() == [1, 2, 3, 4, 5]
    assert end.outcome is not None
    assert end.outcome.values is not None
    assert end.outcome.values.stream == b"v" * 1000
    assert end.gone_at is not None
    assert end.release_ms is not None
    assert end.release_ms > 0
    assert len(set(end.gpu_ids)) == 2
    assert end.gpu_name == "Simulated H100"
    assert end.simulated
    assert end.submitted_at <= end.granted_at <= end.running_at <= end.gone_at <= end.finished_at
    until(lambda: gateway.bed.ask("free") == GPUS, "Ray's own word of it, which may lag")


def test_the_outcome_is_not_shown_before_the_lease_is_gone(gateway: GatewayBed, open_session) -> None:
    reading = Reading(open_session().submit(request("values 10", "session")))
    reading.end()
    for view in reading.views():
        assert (view.outcome is not None) == (view.gone_at is not None)


def test_a_run_is_persisting_until_its_results_are_durable(gateway: GatewayBed, open_session) -> None:
    asked = request("late\nvalues 10", "session")
    reading = Reading(open_session().submit(asked))
    gone = reading.gone()
    assert gone.state == "persisting"
    assert gone.outcome is not None
    with gateway.rest() as client:
        assert client.status().gpus.held == 0
    gateway.let_go(asked.run, "durable")
    assert reading.end().state == "succeeded"


def test_a_failed_cell(gateway: GatewayBed, open_session) -> None:
    end = Reading(open_session().submit(request("fail", "session"))).end()
    assert end.state == "failed"
    assert end.reason == "ZeroDivisionError: division by zero"


def test_runs_that_are_alike_start_by_age_and_hear_why_they_wait(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    first = request("hold", "session", gpus=3)
    holder = Reading(session.submit(first))
    holder.state("running")
    one = Reading(session.submit(request("print 1", "session", gpus=4)))
    two = Reading(session.submit(request("print 1", "session", gpus=4)))
    assert one.position(1).reason == "next in the queue: needs 4 GPUs, 1 of 4 is free"
    assert two.position(2).reason == "2nd in the queue: needs 4 GPUs, 1 of 4 is free"
    with gateway.rest() as client:
        status = client.status()
    assert [(row.position, row.gpus) for row in status.queue] == [(1, 4), (2, 4)]
    assert (status.gpus.held, status.gpus.free) == (3, 1)
    gateway.let_go(first.run)
    ends = [reading.end() for reading in (holder, one, two)]
    assert [end.state for end in ends] == ["succeeded"] * 3
    assert ends[0].gone_at <= ends[1].granted_at <= ends[1].gone_at <= ends[2].granted_at


def test_gpus_go_to_the_next_run_of_the_same_shape_with_their_group(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    first, second = request("hold", "session", gpus=4), request("hold", "session", gpus=4)
    one, two = Reading(session.submit(first)), Reading(session.submit(second))
    one.state("running")
    two.position(1)
    gateway.let_go(first.run)
    handed = one.end()
    two.state("running")
    assert gateway.bed.ask("groups") == [gateway.group_of(first.run)]  # no round trip to Ray
    gateway.let_go(second.run)
    took = two.end()
    assert sorted(took.gpu_ids) == sorted(handed.gpu_ids)
    assert gateway.bed.ask("groups") == []


def test_waiting_has_a_limit(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    holder = request("hold", "session", gpus=4)
    reading = Reading(session.submit(holder))
    reading.state("running")
    end = Reading(session.submit(request("print 1", "session", wait_s=0.3))).end()
    assert end.state == "failed"
    assert end.reason.startswith("no GPU within 300 ms (--wait) · next in the queue: needs 1 GPU, 0 of 4 are free")
    assert end.outcome.status == "timeout"
    gateway.let_go(holder.run)
    reading.end()


def test_a_queued_run_is_cancelled_at_once(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    holder, queued = request("hold", "session", gpus=4), request("print 1", "session")
    one, two = Reading(session.submit(holder)), Reading(session.submit(queued))
    two.state("queued")
    session.signal(queued.run)
    end = two.end()
    assert (end.state, end.granted_at, end.outcome.error.code) == ("cancelled", None, "cancelled")
    one.state("running")  # only then it has its folder
    gateway.let_go(holder.run)
    one.end()


def test_a_second_interrupt_kills(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    asked = request("print 1\nstubborn", "session")
    reading = Reading(session.submit(asked))
    reading.event(1)
    session.signal(asked.run)
    session.signal(asked.run)
    end = reading.end()
    assert end.state == "cancelled"
    assert end.outcome.notes == ["signal kill"]


def test_an_interrupt_reaches_the_node(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    asked = request("hold", "session")
    reading = Reading(session.submit(asked))
    reading.state("running")
    session.signal(asked.run)
    end = reading.end()
    assert end.state == "cancelled"
    assert end.outcome.notes == ["signal interrupt"]
    assert end.reason == "interrupted"


def test_an_interrupt_right_after_the_submission_is_not_lost(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    for _ in range(5):
        asked = request("hold", "session")
        reading = Reading(session.submit(asked))
        session.signal(asked.run)
        assert reading.end().state == "cancelled"


def test_a_kill_right_after_the_submission_is_a_kill(gateway: GatewayBed, open_session) -> None:
    """Its node does not have it yet: it hears of the kill later, not of an interrupt."""
    session = open_session()
    for _ in range(5):
        asked = request("stubborn", "session")
        reading = Reading(session.submit(asked))
        session.signal(asked.run, "kill")
        assert reading.end().state == "cancelled"


def test_the_same_submission_twice_is_one_run(gateway: GatewayBed, open_session) -> None:
    asked = request("print 3", "session")
    session = open_session()
    first = Reading(session.submit(asked)).end()
    again = Reading(session.submit(asked)).end()
    assert again.seq == first.seq
    with gateway.rest() as client:
        assert [row.run for row in client.runs().runs].count(asked.run) == 1


def test_refusals(gateway: GatewayBed, open_session) -> None:
    session = open_session()

    def refused(**facts: object) -> tuple[str, str]:
        answer = Reading(session.submit(request("print 1", "session", **facts))).refused()
        return answer.code, answer.message

    assert refused(gpus=8) == ("impossible_ask", "asks for 8 GPUs, the cluster has 4")
    assert refused(imports=["missing_lib", "numpy"])[0] == "missing_package"
    assert f"missing_lib, which the cluster's Python ({sys.executable})" in refused(imports=["missing_lib"])[1]
    assert refused(gpus=-1)[0] == "bad_request"
    assert refused(ask=ResourceAsk(gpus=3, ranks=2))[0] == "bad_option"
    assert refused(priority="hihg")[0] == refused(queue="research")[0] == "bad_option"
    assert refused(run="../../etc")[0] == "bad_request"
    code, message = refused(ask=ResourceAsk(gpus=1, gpu_type="A100"))
    assert code == "impossible_ask"
    assert "A100" in message
    assert "Simulated H100" in message
    assert refused(ask=ResourceAsk(gpus=1, labels={"zone": "moon"}))[0] == "impossible_ask"
    assert refused(ask=ResourceAsk(gpus=1, memory_bytes=1 << 50))[0] == "impossible_ask"
    with gateway.rest() as client:
        assert client.status().runs == []


def test_what_cannot_be_stored_or_meant_is_refused_and_the_socket_stays_open(gateway: GatewayBed, open_session) -> None:
    """``ranks = 2**63`` once ended the ledger's thread, and with it everything."""
    session = open_session()
    link = session._link
    asks = [
        ResourceAsk(gpus=0, ranks=2**63),
        ResourceAsk(gpus=0, ranks=20_000),
        ResourceAsk(gpus=0, cpus=math.nan),
        ResourceAsk(gpus=1, memory_bytes=-1),
        ResourceAsk(gpus=1, labels={"x" * 10_000: ""}),
    ]
    for ask in asks:
        assert Reading(session.submit(request("print 1", "session", ask=ask))).refused().code == "bad_request"
    many = request("print 1", "session", ask=ResourceAsk(gpus=0, ranks=4_000))
    assert Reading(session.submit(many)).refused().code == "impossible_ask"
    assert session._link is link
    assert Reading(session.submit(request("print 1", "session"))).end().state == "succeeded"
    with gateway.rest() as client:
        assert client.health().ready


def test_asks_that_the_nodes_facts_meet_are_granted(gateway: GatewayBed, open_session) -> None:
    ask = ResourceAsk(gpus=1, gpu_type="h100", min_gpu_memory_bytes=40 << 30, labels={"zone": "test"}, cpus=1.0)
    assert Reading(open_session().submit(request("print 1", "session", ask=ask))).end().state == "succeeded"


def test_the_manifest_tells_the_end(gateway: GatewayBed, open_session, until) -> None:
    asked = request("print 1\nvalues 5", "session", notebook="b.ipynb", versions={"torch": "2"})
    end = Reading(open_session().submit(asked)).end()
    paths = RunPaths(gateway.run_folder(asked.run))
    until(lambda: paths.manifest.exists() and read_manifest(paths)["state"] == "succeeded", "the final manifest")
    manifest = read_manifest(paths)
    assert manifest["run"] == asked.run
    assert manifest["code"] == asked.code
    assert manifest["gpu_ids"] == end.gpu_ids
    assert manifest["outcome"]["results"] == [{"name": "x", "type": "bytes", "bytes": 5}]
    assert "values" not in manifest["outcome"]
    assert oct(paths.manifest.stat().st_mode & 0o777) == "0o600"
    assert msgspec.json.decode(paths.manifest.read_bytes())["schema_version"] == 1


def test_100_000_lines_arrive_complete_and_in_order(gateway: GatewayBed, open_session) -> None:
    reading = Reading(open_session().submit(request("print 500\n" * 200, "session")))
    assert reading.end().state == "succeeded"
    assert reading.numbers() == list(range(1, 100_001))


def test_a_latecomer_reads_the_whole_output(gateway: GatewayBed, open_session) -> None:
    session = open_session()
    asked = request("print 20\nhold\nprint 5", "session")
    first = Reading(session.submit(asked))
    first.state("running")
    other = Reading(open_session("other").follow(asked.run, after=4))
    other.event(20)
    gateway.let_go(asked.run)
    assert other.end().state == "succeeded"
    assert other.numbers() == list(range(5, 26))
    first.end()
    afterwards = Reading(open_session("third").follow(asked.run))
    assert afterwards.end().state == "succeeded"
    assert afterwards.numbers() == list(range(1, 26))
