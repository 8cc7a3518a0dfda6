"""Who may do and see what: owner, admin, others; what a record gets later is hidden from others until it is named."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace as changed

from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.gateway.auth import permissions
from jupyter_gpu_release.gateway.auth.permissions import Act, Caller, may, shown_run, shown_status, shown_view
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, RunError, RunRow, StatusDocument, WarmRow
from jupyter_gpu_release.protocol.runs import FileInfo, Outcome, Reason, RunView, ValueInfo

OWNER, ADMIN, OTHER = Caller("ann"), Caller("root", "admin"), Caller("bob")


@pytest.mark.parametrize(
    ("caller", "acts"),
    [
        (OWNER, set(Act)),
        (ADMIN, {Act.READ, Act.CHANGE, Act.LEASE}),
        (OTHER, set()),
        (Caller("bob", "superuser"), set()),
        (Caller("", ""), set()),
    ],
    ids=lambda value: value.user if isinstance(value, Caller) else "",
)
def test_what_each_may_do(caller: Caller, acts: set[Act]) -> None:
    assert {act for act in Act if may(caller, "ann", act)} == acts


def test_an_assistant_looks_at_its_users_runs_and_changes_those_of_assistants() -> None:
    assistant = Caller("ann", "assistant")
    assert {act for act in Act if may(assistant, "ann", act, "digits.ipynb [3]")} == {Act.READ, Act.LOAD}
    assert {act for act in Act if may(assistant, "ann", act, "assistant")} == set(Act)
    assert not any(may(assistant, "bob", act, "assistant") for act in Act)


def test_an_assistant_sends_runs_and_nothing_that_is_its_users() -> None:
    assistant = Caller("ann", "assistant")
    sent = [route.path for route in ROUTES if route.method == "POST" and assistant.may_ask(route.method, route.path)]
    assert sorted(sent) == [
        "/v1/outlook",
        "/v1/packages/check",
        "/v1/packages/resolve",
        "/v1/packages/wheels/{digest}",
        "/v1/runs",
        "/v1/runs/{run}/cancel",
    ]
    assert all(OWNER.may_ask(route.method, route.path) for route in ROUTES)


def test_an_admins_own_run_is_wholly_hers() -> None:
    assert may(ADMIN, "root", Act.LOAD)


def row(state: str = "failed") -> RunRow:
    return RunRow(
        run="r",
        user="ann",
        state=state,
        gpus=2,
        ranks=1,
        name="plan",
        notebook="merger.ipynb",
        cell="c3",
        queue="default",
        priority="normal",
        simulated=False,
        submitted_at=1.0,
        granted_at=2.0,
        running_at=3.0,
        gone_at=4.0,
        finished_at=5.0,
        queued_s=1.0,
        held_s=2.0,
        release_ms=9.0,
        position=1,
        reason="why: secret",
        hosts=["n1"],
        gpu_ids=["0"],
        gpu_name="H100",
        results=[ValueInfo("profit", "int", 8)],
        files=[FileInfo("plan.txt", 3)],
        error=RunError("ValueError", "secret"),
        notes=["secret"],
    )


@pytest.mark.parametrize("caller", [OWNER, ADMIN], ids=lambda caller: caller.user)
def test_owner_and_admins_see_a_row_whole(caller: Caller) -> None:
    assert shown_run(caller, row()) == row()


def test_others_see_who_holds_how_much_since_when() -> None:
    seen = msgspec.to_builtins(shown_run(OTHER, row()))
    for name in ("run", "user", "state", "gpus", "queue", "submitted_at", "held_s", "hosts", "gpu_ids"):
        assert seen[name] == msgspec.to_builtins(row())[name]
    text = str(seen)
    for word in ("plan", "merger", "c3", "profit", "secret", "ValueError"):
        assert word not in text


def test_others_learn_why_a_run_waits_but_not_how_it_ended() -> None:
    assert shown_run(OTHER, row("queued")).reason == "why: secret"
    assert shown_run(OTHER, row("failed")).reason == ""


@pytest.mark.parametrize("kind", [RunRow, WarmRow])
def test_the_rest_of_a_row_is_nobodys_but_the_owners(kind: type[RunRow] | type[WarmRow]) -> None:
    public = permissions.PUBLIC_RUN if kind is RunRow else permissions.PUBLIC_WARM
    filled = {entry.name: f"secret {entry.name}" for entry in msgspec.structs.fields(kind)}
    seen = permissions._public(kind(**filled), public)  # type: ignore[arg-type]
    assert {name for name in filled if getattr(seen, name) == filled[name]} == public
    assert "secret" not in str(kind(**{name: getattr(seen, name) if name not in public else "x" for name in filled}))


def test_the_status_of_others() -> None:
    active = changed(row("running"), progress="secret line", kernel="k1", start_after="")
    queued = changed(row("queued"), start_estimate_s=9.0, start_after="eve", priority_value=75, title="plan()")
    document = StatusDocument(1, False, GatewayFacts("u", "v"), GpuCounts(1, 1, 0, 0), [], [queued], [active])
    for caller in (OWNER, ADMIN):
        whole = changed(document, user=caller.user, role=caller.role)
        assert shown_status(caller, document) == whole
    seen = shown_status(OTHER, document)
    assert (seen.queue[0].reason, seen.queue[0].start_estimate_s) == ("why: secret", 9.0)
    assert (seen.queue[0].start_after, seen.queue[0].priority_value, seen.queue[0].title) == ("eve", 75, "")
    assert seen.runs == [shown_run(OTHER, active)]
    assert (seen.runs[0].held_s, seen.runs[0].progress, seen.runs[0].kernel, seen.runs[0].reason) == (2.0, "", "", "")


def test_of_warm_gpus_others_see_whose_they_are_and_until_when() -> None:
    facts = {field.name: f"secret {field.name}" for field in msgspec.structs.fields(WarmRow)} | {"user": "ann"}
    document = StatusDocument(
        1, False, GatewayFacts("u", "v"), GpuCounts(1, 1, 0, 0), [], [], [], warm=[WarmRow(**facts)]
    )
    assert shown_status(OWNER, document).warm == shown_status(ADMIN, document).warm == document.warm
    (seen,) = shown_status(OTHER, document).warm
    kept = {name for name, value in facts.items() if getattr(seen, name) == value}
    assert kept == permissions.PUBLIC_WARM


def test_values_travel_to_the_owner_only() -> None:
    view = RunView("r", "ann", "succeeded", outcome=Outcome("ok"))
    assert shown_view(OWNER, view).outcome is not None
    assert shown_view(ADMIN, view).outcome is None
    assert shown_view(OTHER, view).outcome is None


def test_somebody_who_is_named_in_a_reason_is_you() -> None:
    cause = Reason("cancelled", {"user": ADMIN.user})
    view = RunView("r", "ann", "cancelled", reason=f"cancelled by {ADMIN.user}", cause=cause)
    assert shown_view(ADMIN, view).reason == "cancelled by you"
    assert shown_view(OWNER, view).reason == f"cancelled by {ADMIN.user}"


#: what users without the admin's role may call (each handler decides about the run in question). A new route is the
#: admins' until somebody adds it here, on purpose
_OPEN_TO_USERS = {
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/{run}"),
    ("GET", "/v1/runs/{run}/outcome"),
    ("POST", "/v1/runs/{run}/cancel"),
    ("POST", "/v1/runs/{run}/pin"),
    ("POST", "/v1/runs/{run}/unpin"),
    ("POST", "/v1/runs/{run}/preempt"),
    ("GET", "/v1/runs/{run}/events"),
    ("POST", "/v1/leases/{lease}/release"),
    ("POST", "/v1/leases/{lease}/extend"),
    ("POST", "/v1/imports/{name}"),
    ("POST", "/v1/gc"),
    ("GET", "/v1/runs/{run}/lineage"),
    ("POST", "/v1/runs/{run}/reused"),
    ("POST", "/v1/cache"),
    ("GET", "/v1/status"),
    ("WS", "/v1/session"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/report"),
    # packages of the nodes, and a wheel by its content: none is run but in the cells of who asks for it
    ("GET", "/v1/packages"),
    ("POST", "/v1/packages/check"),
    ("POST", "/v1/packages/resolve"),
    ("POST", "/v1/packages/wheels/{digest}"),
    ("POST", "/v1/outlook"),
    ("GET", "/v1/notify"),
    ("POST", "/v1/notify"),
    ("POST", "/v1/notify/test"),
    ("GET", "/v1/runs/{run}/outlook"),
    ("GET", "/v1/health"),
    ("GET", "/v1/checks"),
    ("GET", "/openapi.json"),
}


def test_a_route_is_the_admins_unless_it_is_named_here() -> None:
    """The walk in test_every_route.py believes ``Route.admin``; this does not."""
    assert {(route.method, route.path) for route in ROUTES if not route.admin} == _OPEN_TO_USERS
    assert [route.path for route in ROUTES if route.admin], "no route is the admins'"
