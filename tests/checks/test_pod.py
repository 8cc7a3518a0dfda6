"""Findings in a pod of the chart: its token, the way to the head, its GPUs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from ports import free_port

from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK, Finding
from jupyter_gpu_release.checks.pod import check_pod, without_gateway


@pytest.fixture
def pod(tmp_path: Path) -> dict[str, str]:
    """The environment of one whose head does not listen."""
    token = tmp_path / "ray-token"
    token.write_text("secret\n")
    return {"JUPYTER_GPU_POD_HEAD": f"127.0.0.1:{free_port()}", "RAY_AUTH_TOKEN_PATH": str(token)}


def broken(pod: dict[str, str], gpus: int = 0) -> dict[str, Finding]:
    return {found.check: found for found in check_pod(gpus, pod) if found.level == BROKEN}


def test_elsewhere_nothing_is_found() -> None:
    assert list(check_pod(0, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})) == []


def test_one_that_reaches_its_head_is_fine(pod: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        pod["JUPYTER_GPU_POD_HEAD"] = f"127.0.0.1:{head.getsockname()[1]}"
        found = list(check_pod(0, pod))
    assert [one.check for one in found] == ["pod", "token", "network"]
    assert {one.level for one in found} == {OK}


def test_a_head_that_does_not_listen_or_has_no_name_is_said(pod: dict[str, str]) -> None:
    assert "nothing listens there" in broken(pod)["network"].finding
    assert "kubectl get pod -l ray.io/node-type=head" in broken(pod)["network"].hint
    pod["JUPYTER_GPU_POD_HEAD"] = "nobody.invalid:6379"
    assert "no address is known for nobody.invalid" in broken(pod)["network"].finding


def test_a_token_that_is_not_there_or_empty_is_said(pod: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ray-token").write_text("")
    assert broken(pod)["token"].finding == f"Ray's token is empty ({tmp_path}/ray-token)"
    pod["RAY_AUTH_TOKEN_PATH"] = str(tmp_path / "none")
    assert broken(pod)["token"].finding == f"Ray's token cannot be read: {tmp_path}/none: No such file or directory"
    assert "needs the key `ray-token`" in broken(pod)["token"].hint
    del pod["RAY_AUTH_TOKEN_PATH"]
    assert broken(pod)["token"].finding == "Ray's token is empty (RAY_AUTH_TOKEN_PATH is not set)"


def test_gpus_that_the_driver_does_not_show_are_said(pod: dict[str, str]) -> None:
    pod["NVIDIA_VISIBLE_DEVICES"] = "GPU-1,GPU-2"
    said = "the device plugin gave this container 2 GPUs, the driver shows 0 of them"
    assert broken(pod)["pod"].finding == said
    assert "pod" not in broken(pod, gpus=2)
    for word in ("all", "void"):
        pod["NVIDIA_VISIBLE_DEVICES"] = word
        assert "pod" not in broken(pod)


def test_a_gateway_that_is_not_up_is_the_heads_trouble_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", "/home")
    assert without_gateway().level == BROKEN
    monkeypatch.delenv("JUPYTER_GPU_HOME")
    assert without_gateway().level == NOTE
