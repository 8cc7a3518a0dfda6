"""Packages beside this one: what an extra asks for, and is not there."""

from __future__ import annotations

from importlib import metadata

import pytest

from jupyter_gpu_release.checks import package
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK
from jupyter_gpu_release.errors import ClusterError

_REQUIRES = [
    "httpx>=0.27",
    "ray<2.61,>=2.60; extra == 'cluster'",
    "uvicorn>=0.35; extra == 'cluster' or extra == 'hub'",
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions by name, in place of the environment's."""
    versions = {"httpx": "0.28"}

    def version(name: str) -> str:
        try:
            return versions[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda _name: _REQUIRES)
    return versions


def test_what_an_extra_lacks_is_named_with_the_line_that_installs_it(installed: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=r"^a cluster here needs ray, uvicorn, not installed in ") as missing:
        package.require_extra("cluster", "a cluster here")
    assert missing.value.hint.endswith(" -m pip install 'jupyter-gpu-release[cluster]'")
    installed["uvicorn"] = "0.36"
    package.require_extra("hub", "the service")
    with pytest.raises(ClusterError, match="needs ray, not installed"):
        package.require_extra("cluster", "a cluster here")
    installed["ray"] = "2.60.1"
    package.require_extra("cluster", "a cluster here")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("version", "level"), [("", NOTE), ("2.60.1", OK), ("2.61.0", BROKEN)])
def test_ray_is_needed_only_where_a_cluster_is_started(version: str, level: str) -> None:
    assert package.compare_ray(version).level == level


def test_a_package_that_is_not_installed_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    package.require_extra("cluster", "a cluster here")
