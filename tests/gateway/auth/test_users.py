"""Two users of one gateway: runs are private, tokens expire, versions must match."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import (
    AuthenticationError,
    ClusterError,
    ForbiddenError,
    GpuReleaseError,
    NoSuchRunError,
    TooManyAttemptsError,
)
from jupyter_gpu_release.gateway.auth.tokens import digest_of
from jupyter_gpu_release.gateway.db.database import open_ledger, put_token
from jupyter_gpu_release.gateway.db.rows import StoredToken
from jupyter_gpu_release.gateway.readiness import check_versions


@pytest.fixture(scope="module")
def team(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    """A gateway that knows tokens of ann and bob, and an expired one."""
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("team"), free_attempts=5)
    engine = open_ledger(Path(bed.config.home) / "ledger.sqlite")
    with engine.begin() as connection:
        for user, expires_at in (("ann", None), ("bob", time.time() + 3600), ("eve", time.time() - 1)):
            put_token(connection, StoredToken(digest_of(f"{user}-token"), "t", user, "user", expires_at, 0.0))
    engine.dispose()
    assert bed.deploy().ok
    yield bed
    bed.end()


def _rest(team: GatewayBed, user: str) -> GatewayClient:
    return GatewayClient(team.url, f"{user}-token", timeout_s=60.0)


@pytest.fixture
def sessions(team: GatewayBed) -> Iterator[dict[str, GatewaySession]]:
    found = {user: GatewaySession(Target(team.url, f"{user}-token"), f"s-{user}") for user in ("ann", "bob")}
    for session in found.values():
        session.connect()
    yield found
    for session in found.values():
        session.close()


def test_a_run_is_its_owners(team: GatewayBed, sessions: dict[str, GatewaySession]) -> None:
    asked = request("print 2\nhold\nvalues 10", "s-ann", name="secret plan", notebook="merger.ipynb")
    reading = Reading(sessions["ann"].submit(asked))
    assert reading.state("running").user == "ann"
    with _rest(team, "bob") as bob:
        for forbidden in (bob.run, bob.cancel, bob.events):
            with pytest.raises(ForbiddenError, match=f"run {asked.run} belongs to ann"):
                forbidden(asked.run)
        (seen,) = bob.runs().runs  # who holds what is for everybody, what it is called is not
        assert (seen.user, seen.state, seen.gpus, seen.name, seen.notebook) == ("ann", "running", 1, "", "")
        assert bob.runs(mine=True).runs == []
        (active,) = bob.status().runs
        assert (active.user, active.run, active.name, active.notebook) == ("ann", asked.run, "", "")
        with pytest.raises(NoSuchRunError):
            bob.run("20200101-000000-00000000")
    with _rest(team, "ann") as ann:
        assert [(row.name, row.notebook) for row in ann.status().runs] == [("secret plan", "merger.ipynb")]
    assert Reading(sessions["bob"].follow(asked.run)).refused().code == "forbidden"
    assert Reading(sessions["bob"].submit(asked)).refused().code == "conflict"
    sessions["bob"].signal(asked.run, "kill")
    team.let_go(asked.run)
    assert reading.end().state == "succeeded"


def test_the_admin_sees_the_run_but_not_its_values(team: GatewayBed, sessions: dict[str, GatewaySession]) -> None:
    asked = request("values 10", "s-bob")
    assert Reading(sessions["bob"].submit(asked)).end().outcome.values is not None
    admin = GatewaySession(team.target, "s-admin")
    admin.connect()
    seen = Reading(admin.follow(asked.run)).end()
    admin.close()
    assert (seen.state, seen.outcome) == ("succeeded", None)
    with team.rest() as client:
        assert [value.name for value in client.run(asked.run).results] == ["x"]  # what there is, not the values
        assert asked.run in [row.run for row in client.runs().runs]


def test_a_session_is_its_users(team: GatewayBed, sessions: dict[str, GatewaySession]) -> None:
    thief = GatewaySession(Target(team.url, "bob-token"), "s-ann")
    with pytest.raises(ForbiddenError, match="another user"):
        thief.connect()
    thief.close()


def test_an_address_with_many_unknown_tokens_has_to_wait_but_good_ones_pass(team: GatewayBed) -> None:
    kinds: list[type] = []
    while TooManyAttemptsError not in kinds and len(kinds) < 20:  # a machine that stands still has waited
        number = len(kinds)
        with GatewayClient(team.url, f"guess-{number}") as guess, pytest.raises(GpuReleaseError) as refused:
            guess.health()
        kinds.append(type(refused.value))
    assert set(kinds[:5]) == {AuthenticationError}
    assert kinds[-1] is TooManyAttemptsError
    with _rest(team, "ann") as ann:
        assert ann.health().ready
    with _rest(team, "eve") as eve, pytest.raises(AuthenticationError, match="expired"):
        eve.health()
    assert '"too_many_attempts"' in (Path(team.config.home) / "log" / "audit.jsonl").read_text()


OURS = {"python": "3.11.7", "ray": "2.60.0", "package": "0.1.0"}


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"ray": "2.59.0"}, ["Ray 2.59.0", "Ray 2.60.0"]),
        ({"python": "3.12.1"}, ["Python 3.12.1", "Python 3.11.7"]),
        (
            {"error": "No module named 'jupyter_gpu_release'"},
            ["cannot be imported", "install the package there as here"],
        ),
        ({"package": "0.2.0"}, ["0.2.0", "0.1.0", "install the package there as here"]),
    ],
    ids=str,
)
def test_a_cluster_with_other_versions(theirs: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ClusterError) as refused:
        check_versions("node-1", OURS | theirs, OURS)
    assert refused.value.hint
    assert "node-1" in refused.value.message
    for word in words:
        assert word in str(refused.value)


def test_the_same_minor_python_will_do() -> None:
    check_versions("node-1", OURS | {"python": "3.11.2"}, OURS)
