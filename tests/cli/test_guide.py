"""The command blocks of the operators' pages are run, as they stand there, on a real cluster."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_blocks import DOCS, block, blocks_of

from jupyter_gpu_release.cli import cluster as cluster_commands
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.host.certificates import OwnCertificate
from jupyter_gpu_release.local_cluster import existing_ray, maintenance
from jupyter_gpu_release.protocol.admin import NodeDrain


@pytest.fixture
def gateway(cluster: Ready, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GatewayClient]:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))
    monkeypatch.chdir(tmp_path)
    with GatewayClient.for_target(target_of(cluster.connection)) as client:
        yield client
        for node in client.status().nodes:
            if node.drained:
                client.resume_node(NodeDrain(node.host))
            for gpu in (gpu for gpu in node.gpus if gpu.drained):
                client.resume_node(NodeDrain(f"{node.host}:{gpu.index}"))


def _gpu(line: str) -> None:
    """One line of ``jupyter gpu``."""
    name, command, *words = shlex.split(line, comments=True)
    assert (name, command) == ("jupyter", "gpu"), line
    assert main(words) == 0, line


def test_a_node_and_a_gpu_are_taken_out_and_in(gateway: GatewayClient, capsys: pytest.CaptureFixture[str]) -> None:
    (node,) = gateway.status().nodes
    show, drain, resume, drain_gpu = (
        line.replace("gpu-07", node.host)
        for line in block("operate/drain.md", "# How to take a node or a GPU out").commands()
    )
    _gpu(show)
    assert node.host in capsys.readouterr().out
    _gpu(drain)
    assert "new driver" in gateway.status().nodes[0].drained
    _gpu(resume)
    assert not gateway.status().nodes[0].drained
    _gpu(drain_gpu)
    assert [gpu.index for gpu in gateway.status().nodes[0].gpus if "ECC errors" in gpu.drained] == ["3"]
    _gpu(f"jupyter gpu nodes resume {node.host}:3")


def test_tokens_are_made_listed_and_revoked(
    gateway: GatewayClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_file, shown, listed, revoke = block("operate/tokens.md", "# How to give users tokens").commands()
    _gpu(to_file)
    assert "JUPYTER_GPU_TOKEN_FILE" in capsys.readouterr().err
    with GatewayClient(gateway_url(gateway), (tmp_path / "ann.token").read_text().strip()) as ann:
        assert ann.status().user == "ann"
    _gpu(shown)
    secret = re.search(r"jgr_[\w-]+", capsys.readouterr().out)
    assert secret is not None
    _gpu(listed)
    assert "night shift" in capsys.readouterr().out
    mine = {row.user: row.id for row in gateway.tokens().tokens}
    _gpu(revoke.replace("3f9a12bc04", mine["ops"]))
    _gpu("jupyter gpu token revoke --user ann")


def test_a_token_for_an_assistant(gateway: GatewayClient, tmp_path: Path) -> None:
    (line,) = block("operate/assistants.md", "# How to let assistants in", "jupyter").commands()
    _gpu(line)
    with GatewayClient(gateway_url(gateway), (tmp_path / "ann-assistant.token").read_text().strip()) as ann:
        assert (ann.status().user, ann.status().role) == ("ann", "assistant")
    _gpu("jupyter gpu token revoke --user ann")


def gateway_url(gateway: GatewayClient) -> str:
    return gateway.status().gateway.url


def _make_certificate(folder: Path) -> None:
    """The files ``gateway.crt`` and ``gateway.key``, as the guide has an operator make them."""
    for line in block("operate/certificates.md", "# How to make a certificate").commands():
        subprocess.run(shlex.split(line), cwd=folder, check=True, capture_output=True, timeout=120)


def test_an_authority_and_a_certificate_of_ones_own(tmp_path: Path) -> None:
    _make_certificate(tmp_path)
    assert OwnCertificate(str(tmp_path / "gateway.crt"), str(tmp_path / "gateway.key")).context is not None


def test_no_start_of_the_guide_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's own checks see each line; what it would start stands still."""
    begun = []
    for module, name in ((cluster_commands, "start_embedded"), (existing_ray, "attach"), (maintenance, "upgrade")):
        monkeypatch.setattr(module, name, lambda *_what, **_how: begun.append(1))
    _make_certificate(tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = [
        line
        for page in DOCS.glob("operate/*.md")
        for one in blocks_of(f"operate/{page.name}")
        for line in one.commands()
        if line.startswith("jupyter gpu start")
    ]
    assert len(lines) > 7
    for line in lines:
        _jupyter, _gpu_word, *words = shlex.split(line, comments=True)
        cluster_commands._start(parse(words), HomePaths(tmp_path), print)
    assert len(begun) == len(lines)


def test_the_ledger_is_copied_while_the_cluster_runs(gateway: GatewayClient, cluster: Ready, tmp_path: Path) -> None:
    mask, line = block("operate/backup.md", "## Backup").commands()
    ledger = Path(cluster.connection.token_file).with_name("ledger.sqlite")
    line = line.replace("~/.local/state/jupyter-gpu/ledger.sqlite", str(ledger)).replace("python", sys.executable, 1)
    subprocess.run(["bash", "-c", f"{mask}\n{line}"], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "ledger-copy.sqlite").stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger-copy.sqlite")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT count(*) FROM tokens").fetchone()[0] >= 1


def test_old_results_are_asked_for(
    gateway: GatewayClient, until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    (limits,) = block("operate/old-results.md", "# How to delete old results").commands()
    _gpu(limits)
    said = capsys.readouterr().out
    assert "would be freed" in said
    assert "No limits are set" not in said
    launched = "import jupyter_gpu_release as gpu_release; gpu_release.launch(len, [1], gpus=0).result()"
    subprocess.run([sys.executable, "-c", launched], check=True, timeout=120)
    until(lambda: gateway.collect(dry_run=True).stored, "the run's folder")
    (line,) = block("operate/old-results.md", "## How much is whose", "jupyter").commands()
    _gpu(line)
    said = capsys.readouterr().out
    assert "No limits are set" in said
    shown = block("operate/old-results.md", "## How much is whose", "user").commands()
    assert said.splitlines()[0].split() == shown[0].split()


def test_what_a_monitor_reads(gateway: GatewayClient, cluster: Ready, capsys: pytest.CaptureFixture[str]) -> None:
    by_command, by_http = block("operate/monitor.md", "# How to monitor it").commands()
    _gpu(by_command)
    assert json.loads(capsys.readouterr().out)["gpus"]["total"] == 4
    words = by_http.replace("https://gpu.example.org:8765", gateway_url(gateway))
    words = words.replace("monitor.token", cluster.connection.token_file)
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True, timeout=60)
    health = json.loads(done.stdout)
    assert (health["ready"], health["problems"]) == (True, [])


def test_what_is_run_first_of_all_when_something_is_wrong(
    gateway: GatewayClient, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = block("use/troubleshooting.md", "# Troubleshooting, by message").commands()
    _gpu(line)
    assert "answers and knows the token" in capsys.readouterr().out
