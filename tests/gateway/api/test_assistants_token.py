"""A token for an assistant of ann's: her runs are read, not touched; its own are its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from feeds import Reading
from ray_bed import request
from team_bed import Team

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.rest import NotifyChange

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def secret(team: Team) -> str:
    with team.bed.rest() as root:
        return root.create_token(TokenRequest("ann", "assistant", 3600.0)).secret


@pytest.fixture
def assistant(team: Team, secret: str) -> Iterator[GatewayClient]:
    with GatewayClient(team.bed.url, secret) as client:
        yield client


def test_runs_of_its_user_are_read_and_left_alone(team: Team, assistant: GatewayClient) -> None:
    assert assistant.status().role == "assistant"
    assert assistant.run(team.held).state == "running"
    assert assistant.view(team.over).outcome is not None
    with pytest.raises(ForbiddenError, match="no assistant has sent") as refused:
        assistant.cancel(team.held, kill=True)
    assert "token of ann's own" in refused.value.hint
    assert assistant.run(team.held).state == "running"


def test_what_is_its_users_is_closed(team: Team, assistant: GatewayClient) -> None:
    with pytest.raises(ForbiddenError, match="is not for an assistant's token"):
        assistant.change_notify(NotifyChange())
    with pytest.raises(ForbiddenError, match="is not for an assistant's token"):
        assistant.collect(older_than_s=0)
    with pytest.raises(ForbiddenError, match="is for admins"):
        assistant.tokens()


def test_a_notebooks_session_is_closed_to_it(team: Team, secret: str) -> None:
    session = GatewaySession(Target(team.bed.url, secret), "s-ann")
    with pytest.raises(ForbiddenError, match="opens no session of a notebook"):
        session.connect()
    session.close()


def test_its_runs_are_an_assistants_whatever_they_say(team: Team, secret: str, assistant: GatewayClient) -> None:
    session = GatewaySession(Target(team.bed.url, secret), "assistant-1")
    session.connect()
    asked = request("print 1\nhold", "assistant-1", program="script", notebook="digits.ipynb")
    reading = Reading(session.submit(asked))
    reading.state("running")
    assert assistant.run(asked.run).origin == "assistant"
    assistant.cancel(asked.run, kill=True)
    assert reading.end().state == "cancelled"
    session.close()
