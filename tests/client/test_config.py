from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from doc_blocks import Block, block
from traitlets.config import Config

from jupyter_gpu_release.client.config import GpuRelease, NotebookDefaults, find_target, load_settings
from jupyter_gpu_release.client.home import write_secret
from jupyter_gpu_release.errors import OptionError


def shell(**values: object) -> SimpleNamespace:
    config = Config()
    config.GpuRelease.update(values)
    return SimpleNamespace(config=config)


def test_nothing_configured(tmp_path: Path):
    settings = load_settings(shell(), [tmp_path])
    assert (settings.url, settings.auto_start, settings.defaults) == ("", "local", {})


@pytest.mark.parametrize(
    ("page", "defaults"),
    [
        (block("start/cluster.md", "## In a file"), {}),
        (block("reference.md", "## Configuration files"), {"gpus": 1, "memory": "16GiB", "env": ["OMP_NUM_THREADS=4"]}),
    ],
)
def test_the_files_of_the_pages(page: Block, defaults: dict[str, object], tmp_path: Path):
    (tmp_path / "jupyter_gpu_release_config.py").write_text(page.text)
    settings = load_settings(shell(), [tmp_path])
    assert (settings.url, settings.token_file) == ("https://gpu.example.org", "~/.jupyter/gpu-token")
    assert settings.defaults == defaults


def test_files_of_jupyter(tmp_path: Path):
    user, system = tmp_path / "user", tmp_path / "system"
    user.mkdir()
    system.mkdir()
    (system / "jupyter_gpu_release_config.json").write_text(
        json.dumps({"GpuRelease": {"url": "https://system:1", "auto_start": "never"}})
    )
    (user / "jupyter_gpu_release_config.py").write_text(
        "c.GpuRelease.url = 'https://user:1'\nc.GpuRelease.defaults = {'gpus': 2}\n"
    )
    settings = load_settings(shell(), [user, system])
    assert settings.url == "https://user:1"
    assert settings.auto_start == "never"
    assert settings.defaults == {"gpus": 2}


def test_the_shells_own_configuration_wins(tmp_path: Path):
    (tmp_path / "jupyter_gpu_release_config.json").write_text(json.dumps({"GpuRelease": {"url": "https://file:1"}}))
    assert load_settings(shell(url="https://shell:1"), [tmp_path]).url == "https://shell:1"


def test_the_environment_wins_over_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = {"URL": "http://own:2", "TOKEN": "own", "STORE": "/own", "CA_FILE": "/own.pem"}
    for name in (*own, "TOKEN_FILE"):
        monkeypatch.delenv(f"JUPYTER_GPU_{name}", raising=False)
    write_secret(tmp_path / "token", "of-file")
    settings = GpuRelease(url="http://file:1", token_file=str(tmp_path / "token"), store="/file", ca_file="/file.pem")

    def found() -> list[str]:
        target = find_target(settings)
        assert target is not None
        return [target.url, target.token, target.store, target.ca_file]

    assert found() == ["http://file:1", "of-file", "/file", "/file.pem"]
    for name, value in own.items():
        monkeypatch.setenv(f"JUPYTER_GPU_{name}", value)
    assert found() == list(own.values())


@pytest.mark.parametrize("content", ["c.GpuRelease.auto_start = 'always'", "1 /", "c.GpuRelease.defaults = {'gpu': 1}"])
def test_faulty_files_are_named_in_our_words(tmp_path: Path, content: str):
    (tmp_path / "jupyter_gpu_release_config.py").write_text(content)
    with pytest.raises(OptionError):
        load_settings(shell(), [tmp_path])


def test_every_trait_has_a_manual():
    for name, trait in GpuRelease.class_own_traits(config=True).items():
        assert len(trait.help) > 40, name


def test_defaults_of_the_notebook():
    defaults = NotebookDefaults()
    defaults.change("gpus=2 memory=8GiB fresh=true", {})
    assert defaults.own == {"gpus": ["2"], "memory": ["8GiB"], "fresh": [""]}
    defaults.change("memory= gpus=4 fresh=false", {})
    assert defaults.own == {"gpus": ["4"]}
    defaults.reset()
    assert defaults.own == {}


def test_a_wrong_default_changes_nothing():
    defaults = NotebookDefaults()
    defaults.change("gpus=2", {})
    with pytest.raises(OptionError):
        defaults.change("memory=8GiB gpus=-1", {})
    with pytest.raises(OptionError):
        defaults.change("gpus=3", {"ranks": ["2"]})
    assert defaults.own == {"gpus": ["2"]}
