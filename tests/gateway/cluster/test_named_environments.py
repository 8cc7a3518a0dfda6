"""Named environments are read again whenever somebody asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.cluster.named_environments import NamedEnvironments
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.host.threads import StoreThreads

Make = Callable[..., NamedEnvironments]


@pytest_asyncio.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """As a gateway of this cluster does; each has the ledger that the one before has left."""
    opened = []

    def made(path: Path | str, cluster: str = "c") -> NamedEnvironments:
        for _, ledger in opened:
            ledger.close()
        engine = database.open_ledger(tmp_path / "ledger.sqlite")
        opened.append((engine, LedgerWriter(engine)))
        return NamedEnvironments(str(path), cluster, *opened[-1], StoreThreads())

    yield made
    for engine, ledger in opened:
        ledger.close()
        engine.dispose()


async def _names(offers: NamedEnvironments, user: str = "ann") -> list[str]:
    return [each.name for each in await offers.of_user(user, {"team": ["ann"]})]


def _file(name: str) -> str:
    return f'schema_version: 1\nenvironments: [{{name: {name}, requirements: [einops], users: ["@team"]}}]'


@pytest.mark.asyncio
async def test_another_python_is_for_those_who_are_offered_it(tmp_path: Path, make: Make) -> None:
    """Nodes start what it names."""
    path = tmp_path / "environments.yaml"
    named = "{name: vision, path: /envs/vision, users: [ann]}"
    path.write_text(f"schema_version: 1\npythons: ['3.13']\nenvironments: [{named}]")
    offers = make(path)
    for user, interpreter in (("bob", ""), ("bob", "3.13"), ("ann", "/envs/vision")):
        await offers.check(interpreter, user, {})
    for user, interpreter in (("bob", "/envs/vision"), ("ann", "/home/ann/python"), ("ann", "3.12")):
        with pytest.raises(ForbiddenError, match="is none that you are offered"):
            await offers.check(interpreter, user, {})


@pytest.mark.asyncio
async def test_the_last_good_version_of_the_file_holds(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "environments.yaml"
    offers = make(path)
    assert await _names(offers) == []
    path.write_text(_file("vision"))
    assert (await _names(offers), await _names(offers, "bob")) == (["vision"], [])
    path.write_text("environments: [")
    assert await _names(offers) == ["vision"]
    assert offers.trouble is not None
    assert offers.trouble.message.startswith(f"{path}, line 1: ")
    path.write_text(_file("text"))
    assert (await _names(offers), offers.trouble) == (["text"], None)
    assert await _names(make("")) == []


@pytest.mark.asyncio
async def test_pythons_that_all_are_offered_are_those_that_nodes_should_have(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "environments.yaml"
    named = "[{name: a, path: /envs/a}, {name: b, path: /envs/b, users: [ann]}, {name: c, python: '3.13'}]"
    path.write_text(f"schema_version: 1\npythons: ['3.13', /opt/python]\nenvironments: {named}")
    offers = make(path)
    assert await offers.interpreters() == ["3.13", "/opt/python", "/envs/a"]


@pytest.mark.asyncio
async def test_a_status_names_those_that_its_reader_is_offered(tmp_path: Path, make: Make) -> None:
    """Asked again and again it reads no file: what it says may be a moment old."""
    path = tmp_path / "environments.yaml"
    path.write_text(_file("vision"))
    offers, groups = make(path), {"team": ["ann"]}
    assert (await offers.names_for("ann", groups), await offers.names_for("bob", groups)) == (["vision"], [])
    path.write_text(_file("text"))
    assert await offers.names_for("ann", groups) == ["vision"]


@pytest.mark.asyncio
async def test_a_gateway_that_restarts_has_the_last_good_version_too(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "environments.yaml"
    path.write_text(_file("vision"))
    assert await _names(make(path)) == ["vision"]
    path.write_text("schema_version: 1\nenvironments: [{name: Up}]")
    again = make(path)
    assert await _names(again) == ["vision"]
    assert again.trouble is not None
    assert f"{path}, line 2: environments[0].name: " in again.trouble.message
    assert again.trouble.hint == "`jupyter gpu docs operate/environments` shows such a file"
    assert await _names(make(path, "another cluster")) == []
    assert await _names(make(tmp_path / "other.yaml")) == [], "another file"
