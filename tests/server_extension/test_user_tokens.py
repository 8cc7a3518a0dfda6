"""Several users of one Jupyter server, each with a token of their own, on a real cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_bed import request
from server_bed import API, ServerBed

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.admin import TokenRequest, TokenRevocation
from jupyter_gpu_release.server_extension.user_tokens import file_name

Until = Callable[[Callable[[], object], str], None]
#: stands for a Hub's or a site's identity provider: the login is the server's token, the name comes in a header
_PROVIDER = """
from inspect import isawaitable
from jupyter_server.auth import IdentityProvider, User

class ByHeader(IdentityProvider):
    async def get_user(self, handler):
        user = super().get_user(handler)
        user = await user if isawaitable(user) else user
        name = handler.request.headers.get("X-Test-User")
        return User(username=name) if user is not None and name else user
"""


class Team:
    """A server whose own token is the cluster's admin's, and what each user is answered."""

    def __init__(self, bed: ServerBed, folder: Path, root: GatewayClient) -> None:
        self.bed, self.folder, self.root = bed, folder, root

    def join(self, user: str) -> str:
        """Make a token for somebody and put it where the server looks; returns the secret."""
        secret = self.root.create_token(TokenRequest(user, "user", 3600.0)).secret
        file = self.folder / file_name(user)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, secret.encode())
        os.close(descriptor)
        return secret

    def get(self, user: str, path: str) -> Any:
        return self.bed.http.get(f"{API}/{path}", headers={"X-Test-User": user})

    def status(self, user: str) -> dict[str, Any]:
        answer = self.get(user, "status")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def cancel(self, user: str, run: str) -> Any:
        return self.bed.http.post(f"{API}/runs/{run}/cancel", json={}, headers={"X-Test-User": user})


@pytest.fixture(scope="module")
def team(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    tmp_path = tmp_path_factory.mktemp("team")
    own = Path(cluster.connection.token_file)
    tokens = tmp_path / "tokens"
    tokens.mkdir(mode=0o700)
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "by_header.py").write_text(_PROVIDER)
    settings = {"user_tokens": str(tokens), "poll_interval": 0.2}
    config = {"GpuRelease": settings, "ServerApp": {"identity_provider_class": "by_header.ByHeader"}}
    bed = ServerBed(tmp_path / "server", config, {"JUPYTER_GPU_HOME": str(own.parent)})
    # the login's token is read by the class that is used
    with GatewayClient(cluster.connection.url, read_secret(own)) as root:
        yield Team(bed, tokens, root)
    bed.stop()


def _row(document: dict[str, Any], run: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [row for row in (document["cluster"] or {}).get("runs", []) if row["run"] == run]
    return found[0] if found else {}


def test_each_user_sees_and_does_what_the_gateway_allows_that_user(cluster: Ready, team: Team, until: Until) -> None:
    secret = team.join("ann@site.org")
    team.join("bob")
    session = GatewaySession(Target(cluster.connection.url, secret), "identities")
    session.connect(60)
    asked = request("import time\ntime.sleep(600)", "identities", notebook="merger.ipynb")
    session.submit(asked)
    until(lambda: _row(team.status("ann@site.org"), asked.run), "ann's run in her status")
    assert _row(team.status("ann@site.org"), asked.run)["notebook"] == "merger.ipynb"
    until(lambda: _row(team.status("bob"), asked.run), "her run in bob's status")
    assert _row(team.status("bob"), asked.run)["notebook"] == ""
    assert [row["notebook"] for row in team.get("bob", "runs").json()["runs"] if row["run"] == asked.run] in ([], [""])
    assert team.status("bob")["cluster"]["user"] == "bob"
    refused = team.cancel("bob", asked.run)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert team.cancel("ann@site.org", asked.run).status_code == 200
    session.close()


def test_who_has_no_token_gets_nothing_of_the_servers_own(team: Team, until: Until) -> None:
    until(lambda: team.bed.get("health")["gateway"] == "connected", "the server's own line")
    for name in ("carol", "../server", ".."):
        status = team.status(name)
        assert (status["cluster"], status["gateway"]["state"]) == (None, "refused")
        assert "user_tokens" in status["gateway"]["mend"]
        answer = team.get(name, "runs")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert team.cancel(name, "20260101-000000-00000000").status_code == 403


def test_a_token_that_ends_ends_what_its_user_sees(team: Team, until: Until) -> None:
    team.join("dora")
    until(lambda: team.status("dora")["cluster"], "dora's status")
    team.root.revoke_tokens(TokenRevocation(user="dora"))
    assert team.get("dora", "runs").status_code == 401
    until(lambda: team.status("dora")["cluster"] is None, "the refusal")
    assert team.status("dora")["gateway"]["state"] == "refused"
    team.join("dora")
    until(lambda: team.status("dora")["cluster"], "her new token to count")
    (team.folder / "dora").chmod(0o644)
    assert "may be read by others" in team.get("dora", "runs").json()["message"]
    (team.folder / "dora").unlink()
    assert team.get("dora", "runs").status_code == 403


def test_names_of_users_never_become_paths() -> None:
    assert file_name("ann@example.org") == "ann@example.org"
    assert file_name("../ann") == "%2E.%2Fann"
    assert file_name("..") == "%2E."
    assert file_name("a b\0c") == "a%20b%00c"
    assert len({file_name(name) for name in ("a/b", "a%2Fb", "a_b")}) == 3


def test_everybody_sets_how_they_themselves_are_told(team: Team) -> None:
    """The own addresses, by the own token; this cluster's operator allows none, and that is said."""
    for user in ("nora", "olaf"):
        team.join(user)

    def change(user: str, **wishes: Any) -> Any:
        return team.bed.http.post(f"{API}/notify", json=wishes, headers={"X-Test-User": user})

    assert change("nora", starts=False).json()["starts"] is False
    assert [
        (told["user"], told["starts"], told["ends"])
        for told in (team.get(user, "notify").json() for user in ("nora", "olaf"))
    ] == [("nora", False, True), ("olaf", True, True)]
    refused = change("nora", email="nora@example.org")
    assert (refused.status_code, refused.json()["message"]) == (400, "this cluster sends no mail")
    refused = change("nora", webhook="https://hooks.slack.com/services/s3cret")
    assert (refused.status_code, "s3cret" in refused.text) == (400, False)
    tested = team.bed.http.post(f"{API}/notify/test", json={}, headers={"X-Test-User": "nora"})
    assert (tested.status_code, tested.json()["message"]) == (400, "there is no address to tell")
    assert team.get("nobody-with-a-token", "notify").status_code == 403
    assert "s3cret" not in team.bed.log()
