"""Named environments are read again whenever somebody asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.cluster.named_environments import NamedEnvironments
from jupyter_gpu_release.store.threads import StoreThreads


async def _names(offers: NamedEnvironments, user: str = "ann") -> list[str]:
    return [each.name for each in await offers.of_user(user, {"team": ["ann"]})]


def _file(name: str) -> str:
    return f'schema_version: 1\nenvironments: [{{name: {name}, requirements: [einops], users: ["@team"]}}]'


@pytest.mark.asyncio
async def test_another_python_is_for_those_who_are_offered_it(tmp_path: Path) -> None:
    """Nodes start what it names."""
    path = tmp_path / "environments.yaml"
    named = "{name: vision, path: /envs/vision, users: [ann]}"
    path.write_text(f"schema_version: 1\npythons: ['3.13']\nenvironments: [{named}]")
    offers = NamedEnvironments(str(path), StoreThreads())
    for user, interpreter in (("bob", ""), ("bob", "3.13"), ("ann", "/envs/vision")):
        await offers.check(interpreter, user, {})
    for user, interpreter in (("bob", "/envs/vision"), ("ann", "/home/ann/python"), ("ann", "3.12")):
        with pytest.raises(ForbiddenError, match="is none that you are offered"):
            await offers.check(interpreter, user, {})


@pytest.mark.asyncio
async def test_the_last_good_version_of_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "environments.yaml"
    offers = NamedEnvironments(str(path), StoreThreads())
    assert await _names(offers) == []
    path.write_text(_file("vision"))
    assert (await _names(offers), await _names(offers, "bob")) == (["vision"], [])
    path.write_text("environments: [")
    assert await _names(offers) == ["vision"]
    path.write_text(_file("text"))
    assert await _names(offers) == ["text"]
    assert await _names(NamedEnvironments("", StoreThreads())) == []


@pytest.mark.asyncio
async def test_pythons_that_all_are_offered_are_those_that_nodes_should_have(tmp_path: Path) -> None:
    path = tmp_path / "environments.yaml"
    named = "[{name: a, path: /envs/a}, {name: b, path: /envs/b, users: [ann]}, {name: c, python: '3.13'}]"
    path.write_text(f"schema_version: 1\npythons: ['3.13', /opt/python]\nenvironments: {named}")
    offers = NamedEnvironments(str(path), StoreThreads())
    assert await offers.interpreters() == ["3.13", "/opt/python", "/envs/a"]


@pytest.mark.asyncio
async def test_a_status_names_those_that_its_reader_is_offered(tmp_path: Path) -> None:
    """Asked again and again it reads no file: what it says may be a moment old."""
    path = tmp_path / "environments.yaml"
    path.write_text(_file("vision"))
    offers, groups = NamedEnvironments(str(path), StoreThreads()), {"team": ["ann"]}
    assert (await offers.names_for("ann", groups), await offers.names_for("bob", groups)) == (["vision"], [])
    path.write_text(_file("text"))
    assert await offers.names_for("ann", groups) == ["vision"]
