"""The hosted session of ``binder/``: it is built and started as there, and fits into the 2 GB that it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from binder_bed import BinderBed, PeakMemory
from fresh_clone import BUNDLE, REPOSITORY
from server_kernel_bed import ServerKernel

pytestmark = pytest.mark.thorough

_LIMIT_MIB = 2000
#: the example trains on all cores, and others may need them
_CELL_LIMIT_S = 400.0
EXAMPLE = "examples/digits.ipynb"
GUIDE = REPOSITORY / "docs" / "operate" / "hosted-session.md"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BinderBed]:
    if not BUNDLE.exists():
        pytest.skip("the sidebar is not built: run make bundle")
    bed = BinderBed(tmp_path_factory.mktemp("binder"))
    try:
        bed.run("binder/postBuild")
        bed.start()
        yield bed
    finally:
        bed.stop()


@pytest.mark.timeout(900)
def test_the_example_runs_and_all_of_the_session_fits_into_two_gigabytes(session: BinderBed) -> None:
    status = "/jupyter-gpu-release/api/status"
    document = session.wait_for(status, lambda answer: answer.json().get("cluster")).json()
    assert document["cluster"]["simulated"]
    assert "jupyter-gpu-release" in session.http.get("/lab").text
    cells = json.loads((session.home / EXAMPLE).read_text())["cells"]
    kernel = ServerKernel(session, path=EXAMPLE)
    try:
        with PeakMemory(session) as peak:
            for cell in cells:
                if cell["cell_type"] == "code":
                    kernel.run("".join(cell["source"]), _CELL_LIMIT_S)
        assert kernel.run("answer = float(accuracy)") > 0.9
    finally:
        kernel.close()
    print(
        f"{peak.mib:.0f} MiB, {peak.files_mib:.0f} of them files:",
        *(f"{mib:5.0f} {name[:100]}" for name, mib in peak.processes.items()),
        sep="\n",
    )
    names = "\n".join(peak.processes)
    for part in ("jupyter-lab", "ipykernel_launcher", "raylet", "gcs_server"):
        assert part in names
    assert 300 < peak.mib <= _LIMIT_MIB
    (written,) = re.findall(r"JupyterLab, its kernel and the whole cluster need ([\d.]+) GB", GUIDE.read_text())
    assert peak.mib * 2**20 / 1e9 == pytest.approx(float(written), rel=0.25), (
        "docs/operate/hosted-session.md has another figure"
    )
