"""Two Ray nodes that give some of the (faked) GPUs of one machine, by number and by UUID, and a gateway on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from embedded_bed import quiet
from feeds import Reading
from nvml_bed import FakeGpus, build_library
from ray_bed import OUR_SETTINGS, RayBed
from second_node import SecondNode

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import HomePaths, read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.local_cluster.existing_ray import attach
from jupyter_gpu_release.local_cluster.start import StartOptions
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.rest import GpuRow, StatusDocument
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import Events
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

_GIB = 1 << 30
#: the machine has six; the last one is divided
UUIDS = [f"GPU-{letter * 8}-0000" for letter in "012345"]
PART = "MIG-eeeeeeee-0000"
#: what Ray gives: cards 2 and 3, and on the other node card 4 and the part of card 5
ON_HEAD, ON_SECOND = ("2", "3"), (UUIDS[4], PART)
GIVEN = (*ON_HEAD, *ON_SECOND)
_CELL = """
import os, pathlib, time
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while not pathlib.Path({go!r}).exists():
    time.sleep(0.02)
"""


class Machine(FakeGpus):
    """Its GPUs as the driver shows them; those that nobody gives are ill from the start, and used by others."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(build_library(folder), folder, 0)
        self.show_well()

    def show_well(self, *lines: str, part_used: int = 0) -> None:
        """Show these lines besides what is always so."""
        self.gpus = [f"gpu H100 {uuid} {80 * _GIB} {50 * _GIB * (n < 2)} 0 40 70000" for n, uuid in enumerate(UUIDS)]
        self.show("ecc 0 7", "lost 1", f"mig 5 1 {PART} {10 * _GIB} {part_used}", *lines)


class Held:
    """A run of one GPU, or a part of one, which it holds until it is let go."""

    def __init__(self, session: GatewaySession, folder: Path, gpus: float = 1) -> None:
        self.run = new_run_id()
        self._go = folder / self.run
        source = _CELL.format(go=str(self._go))
        payload = encode(CellPayload(source=source, workdir=str(folder)))
        asked = RunRequest(self.run, session.session_id, ResourceAsk(gpus=gpus), payload, code=source)
        self._reading = Reading(session.submit(asked))
        self._gpu = ""

    def gpu(self) -> str:
        """Wait until it runs; the GPU that it sees."""
        if not self._gpu:
            printed = self._reading.until(lambda item: isinstance(item, Events) and bool(_printed(item)))
            assert isinstance(printed, Events)
            self._gpu = _printed(printed).strip()
        return self._gpu

    def end(self) -> None:
        """Let it go."""
        self._go.touch()
        assert self.state_at_end() == "succeeded"

    def state_at_end(self) -> str:
        """Wait until it is over."""
        return self._reading.end().state


def _printed(item: Events) -> str:
    return "".join(event.data["text"] for event in item.events if event.kind == "stream")


class GpuNodes:
    """The nodes, and the gateway as ``jupyter gpu start --address`` puts it there."""

    def __init__(self, bed: RayBed, machine: Machine, ready: Ready, folder: Path) -> None:
        self._ray = bed
        self.machine = machine
        self._folder = folder
        self.target = Target(ready.connection.url, read_secret(Path(ready.connection.token_file)))
        self._session = GatewaySession(self.target, "gpu-nodes")
        self._session.connect(60.0)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def submit(self) -> Held:
        """A run that waits, or runs."""
        return Held(self._session, self._folder)

    @contextlib.contextmanager
    def run_of(self, user: str, gpus: float = 1) -> Iterator[Held]:
        """A run of another user, who stays connected."""
        with GatewayClient.for_target(self.target, timeout_s=60.0) as gateway:
            token = gateway.create_token(TokenRequest(user, "user", 3600.0)).secret
        session = GatewaySession(Target(self.target.url, token), f"of-{user}")
        session.connect(60.0)
        yield Held(session, self._folder, gpus)
        session.close()

    def status(self) -> StatusDocument:
        """The gateway's status document."""
        with GatewayClient.for_target(self.target, timeout_s=60.0) as gateway:
            return gateway.status()

    def gpus(self) -> dict[str, GpuRow]:
        """All GPUs of all nodes, by the ids that they are listed under."""
        return {gpu.index: gpu for node in self.status().nodes for gpu in node.gpus}

    def reasons(self) -> dict[str, str]:
        """Why GPUs get no runs, without the names of GPU and host."""
        return {name: gpu.drained.partition(": ")[2] for name, gpu in self.gpus().items() if gpu.drained}

    def kill_agents(self) -> None:
        """SIGKILL; Ray starts them anew."""
        for process in psutil.process_iter(["name", "cmdline"]):
            words = process.info["cmdline"] or [""]
            with contextlib.suppress(psutil.Error):
                if words[0].startswith("ray::NodeAgent") and self._ray.marker in str(process.parent().environ()):
                    process.kill()


@contextlib.contextmanager
def gpu_nodes(folder: Path) -> Iterator[GpuNodes]:
    """Start all, and end it."""
    machine = Machine(folder / "driver")
    settings = {**OUR_SETTINGS, **machine.environment, "CUDA_VISIBLE_DEVICES": ",".join(ON_HEAD)}
    bed = RayBed(settings, gpus=len(ON_HEAD))
    with pytest.MonkeyPatch.context() as patch:
        home = HomePaths(folder / "home")
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
            patch.setenv(name, bed.environment[name])
        patch.setenv("JUPYTER_GPU_HOME", str(home.root))
        patch.setenv("JUPYTER_GPU_PRELOAD", "json")
        try:
            ready = attach(bed.address, home=home, asked=StartOptions(), progress=quiet)
            of_bed = msgspec.structs.replace(ready.connection, cluster=bed.marker)
            second = SecondNode(Ready(of_bed, started=True), 2, {"CUDA_VISIBLE_DEVICES": ",".join(ON_SECOND)})
            second.wait_until_up(len(GIVEN))
            nodes = GpuNodes(bed, machine, ready, folder)
            yield nodes
            nodes.close()
        finally:
            main(["stop", "--yes"])
            bed.stop()
