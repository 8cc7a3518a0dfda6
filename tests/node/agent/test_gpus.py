"""NVML through the real pynvml over a fake libnvidia-ml.so.1; without it, everything is empty, nothing fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_bed import build_library

from jupyter_gpu_release.host.gpus import Nvml
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.plugins.node_filters import gpu_type
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.workload import GPU, Node

Ask = Callable[[str, str], object]


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def ask(fake_library: Path, tmp_path: Path) -> Ask:
    """Run code against the fake library in a process of its own; ``answer`` is its JSON result."""

    def run(state: str, code: str) -> object:
        file = tmp_path / "state"
        file.write_text(state)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(fake_library), "FAKE_NVML": str(file)}
        program = "import json, os, pathlib\nfrom jupyter_gpu_release.host.gpus import Nvml\nnvml = Nvml()\n"
        program += (
            "state = pathlib.Path(os.environ['FAKE_NVML'])\n" + textwrap.dedent(code) + "\nprint(json.dumps(answer))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


_TWO = "gpu A100 GPU-1 1000 100 40\ngpu A100 GPU-2 1000 0 0\nprocess 0 4711 90\n"


def test_gpus_and_processes_are_read(ask: Ask) -> None:
    code = """
    gpus = nvml.gpus()
    answer = [[(g.index, g.name, g.uuid, g.memory_bytes, g.used_bytes, g.utilization) for g in gpus],
              nvml.memory_by_pid("0"), nvml.memory_by_pid("1"), nvml.driver_version()]
    """
    gpus = [["0", "A100", "GPU-1", 1000, 100, 0.4], ["1", "A100", "GPU-2", 1000, 0, 0.0]]
    assert ask(_TWO, code) == [gpus, {"4711": 90}, {}, "999.1"]


def test_a_lost_gpu_empties_the_answer_and_heals(ask: Ask) -> None:
    code = """
    before = len(nvml.gpus())
    text = state.read_text()
    state.write_text("error 15\\n")
    lost, problem = len(nvml.gpus()), nvml.problem
    state.write_text(text)
    answer = [before, lost, problem, len(nvml.gpus())]
    """
    before, lost, problem, after = ask(_TWO, code)  # type: ignore[misc]
    assert (before, lost, after) == (2, 0, 2)
    assert problem


def test_what_is_wrong_with_one_gpu_is_told_of_it_alone(ask: Ask) -> None:
    """And is told no longer when it is over: each reading in a driver's life of its own."""
    code = """
    from jupyter_gpu_release.host import gpus
    text = state.read_text()
    def told(*lines):
        state.write_text(text + "\\n".join(lines) + "\\n")
        gpus._LOOK_S = 0.0
        return [gpu.trouble for gpu in nvml.gpus()]
    well = told()
    answer = [told("lost 1"), told("ecc 1 2"), told("remap 1 1 0"), told("remap 1 0 1"), told("slowed 1 64"),
              told("slowed 1 4"), told("xid 1 31"), told("xid 1 79"), told()]
    state.write_text("error 9\\n")  # the driver is loaded anew
    nvml.gpus()
    answer.append(told("xid 1 74"))
    names = [gpu.name for gpu in nvml.gpus()]
    gpus._XID_LASTS_S = 0.0
    answer = [well, answer, told(), names]
    """
    well, told, after, names = ask(_TWO, code)  # type: ignore[misc]
    assert (well, after, names) == (["", ""], ["", ""], ["A100", "A100"])
    assert [first for first, _ in told] == [""] * len(told)
    words = [second for _, second in told]
    assert "GPU is lost" in words[0]
    assert "2 errors that ECC could not correct" in words[1]
    assert "wait for a reset" in words[2]
    assert "is to be replaced" in words[3]
    assert "too hot" in words[4]
    assert words[5] == words[6] == "", "a limit of power that was set, and a fault of a program, are no illness"
    assert words[7] == words[8] == "its driver reported Xid 79"
    assert words[9] == "its driver reported Xid 74"


_FOUR = "".join(
    f"gpu A100 GPU-{letter * 8}-0 1000 {used} 0\n" for letter, used in zip("abcd", (1, 2, 3, 4), strict=True)
)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (["2", "3"], [["2", "A100", "GPU-cccccccc-0", 3], ["3", "A100", "GPU-dddddddd-0", 4]]),
        (["3", " 0"], [["3", "A100", "GPU-dddddddd-0", 4], [" 0", "A100", "GPU-aaaaaaaa-0", 1]]),
        (
            ["GPU-dddd", "GPU-bbbbbbbb-0"],
            [["GPU-dddd", "A100", "GPU-dddddddd-0", 4], ["GPU-bbbbbbbb-0", "A100", "GPU-bbbbbbbb-0", 2]],
        ),
        (["MIG-y", "MIG-x"], [["MIG-y", "A100 MIG", "MIG-y", 20], ["MIG-x", "A100 MIG", "MIG-x", 10]]),
    ],
)
def test_gpus_are_told_under_the_names_that_ray_gives_them(ask: Ask, visible: list[str], seen: list[object]) -> None:
    """Only these, in this order, with their own figures and processes."""
    state = _FOUR + "mig 1 5 MIG-x 100 10\nmig 1 6 MIG-y 200 20\nprocess 1 11 10 -1 5\nprocess 1 12 20 -1 6\n"
    state += "process 3 13 4\n"
    code = f"""
    nvml = Nvml({visible})
    gpus = [[g.index, g.name, g.uuid, g.used_bytes] for g in nvml.gpus()]
    answer = [gpus, [sorted(nvml.memory_by_pid(name)) for name in {visible}], [g.trouble for g in nvml.gpus()]]
    """
    pids = {
        "A100 GPU-dddddddd-0": [13],
        "A100 GPU-bbbbbbbb-0": [11, 12],
        "A100 MIG MIG-y": [12],
        "A100 MIG MIG-x": [11],
    }
    users = [pids.get(f"{name} {uuid}", []) for _, name, uuid, _ in seen]  # type: ignore[misc]
    assert ask(state, code) == [seen, users, ["", ""]]


def test_a_mig_instance_is_a_gpu_of_its_type_below_another_one(ask: Ask) -> None:
    """The driver tells the type with the name, or without; sizes are those of an H100."""
    state = f"gpu A100 GPU-a 1000 1 0\ngpu H100 GPU-b {81559 << 20} 0 0\n"
    state += f"mig 1 1 MIG-x {9856 << 20} 0\nmig 1 2 MIG-y {40448 << 20} 0\n"
    code = """
    read = lambda: [[gpu.index, gpu.name, gpu.slice_of] for gpu in Nvml(["0", "MIG-x", "MIG-y"]).gpus()]
    answer = [read()]
    from jupyter_gpu_release.host import gpus
    plain = gpus.pynvml.nvmlDeviceGetName
    gpus.pynvml.nvmlDeviceGetName = lambda handle: plain(handle).replace("MIG", "MIG 1g.10gb")
    answer.append(read()[:2])
    """
    seen = [["0", "A100", ""], ["MIG-x", "H100 MIG 1g.10gb", "1"], ["MIG-y", "H100 MIG 3g.40gb", "1"]]
    assert ask(state, code) == [seen, seen[:2]]
    asked = to_run("r", ResourceAsk(gpu_type="1g.10gb"))
    assert [gpu_type(asked, Node("n", GPU, name)) is None for _, name, _ in seen] == [False, True, False]


def test_a_name_that_no_gpu_bears_is_that_ones_trouble(ask: Ask) -> None:
    """The same for the beginning of two UUIDs; a GPU that is ill makes all its instances ill."""
    code = """
    nvml = Nvml(["7", "-1", "GPU-", "MIG-x", "0"])
    text = state.read_text()
    before = [gpu.trouble for gpu in nvml.gpus()]
    state.write_text(text + "ecc 1 1\\n")
    from jupyter_gpu_release.host import gpus
    gpus._LOOK_S = 0.0
    ill = [gpu.trouble for gpu in nvml.gpus()]
    state.write_text(text + "lost 1\\n")
    lost = [(gpu.trouble, gpu.name) for gpu in nvml.gpus()]
    answer = [before, ill[3:], lost[3:]]
    """
    before, ill, lost = ask(_FOUR + "mig 1 5 MIG-x 100 10\n", code)  # type: ignore[misc]
    assert before == ["the driver does not know it"] * 3 + ["", ""]
    assert "ECC" in ill[0]
    assert lost == [["the driver says: GPU is lost", "A100 MIG"], ["", "A100"]]
    assert ill[1] == ""


def test_an_error_that_nobody_knows_is_that_of_one_gpu(ask: Ask) -> None:
    """Where all answer it, the library is started anew, and nobody is taken for well."""
    code = """
    text = state.read_text()
    import pynvml
    ends = []
    really = pynvml.nvmlShutdown
    pynvml.nvmlShutdown = lambda: (ends.append(1), really())
    nvml = Nvml(["0", "1"])
    def told(*lines):
        state.write_text(text + "\\n".join(lines) + "\\n")
        return [[gpu.trouble for gpu in nvml.gpus()], [gpu.problem for gpu in Nvml().read().gpus], len(ends)]
    answer = [told("unknown 1"), told("unknown 0", "unknown 1"), told()]
    """
    one, all_, well = ask(_TWO, code)  # type: ignore[misc]
    assert one == [["", "the driver says: Unknown Error"], ["", "Unknown Error"], 0]
    assert all_ == [["the driver says: Unknown Error"] * 2, [], 2]
    assert well == [["", ""], ["", ""], 2]


def test_a_driver_that_was_dead_from_the_start_is_the_trouble_of_all_that_ray_gives(ask: Ask) -> None:
    code = """
    text = state.read_text()
    nvml = Nvml(["0", "1"])
    state.write_text("error 9\\n")
    dead = [(gpu.index, gpu.trouble) for gpu in nvml.gpus()]
    state.write_text(text)
    answer = [dead, [(gpu.name, gpu.trouble) for gpu in nvml.gpus()]]
    """
    dead, well = ask(_TWO, code)  # type: ignore[misc]
    assert dead == [[index, "the driver says: Driver Not Loaded"] for index in ("0", "1")]
    assert well == [["A100", ""], ["A100", ""]]


def test_a_driver_that_hangs_for_long_is_the_trouble_of_all_until_it_answers(ask: Ask) -> None:
    code = """
    import time
    from jupyter_gpu_release.host import gpu_reader
    text = state.read_text()
    state.write_text("hang")
    reader = gpu_reader.GpuReader(Nvml(["0", "1"]))
    asked = reader.ask()
    told = [[gpu.trouble for gpu in reader.current()]]
    gpu_reader.SILENT_S = 0.2
    while reader.silent_s < 0.2:
        time.sleep(0.02)
    told.append([gpu.trouble for gpu in reader.current()])
    part = state.with_suffix(".part")
    part.write_text(text)
    os.replace(part, state)
    asked.result(30)
    answer = [*told, [gpu.trouble for gpu in reader.current()]]
    """
    assert ask(_TWO, code) == [["", ""], ["its driver does not answer"] * 2, ["", ""]]


def test_where_no_driver_was_ever_installed_nothing_is_known_of_gpus_that_ray_gives() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    nvml = Nvml(["0", "1"])
    assert [(gpu.index, gpu.trouble) for gpu in nvml.gpus()] == [("0", ""), ("1", "")]
    assert nvml.problem


def test_the_use_of_a_run_is_sampled_and_what_is_left_is_reported(ask: Ask) -> None:
    code = """
    import asyncio, time
    from jupyter_gpu_release.protocol.node import StartOrder
    from jupyter_gpu_release.host.gpu_reader import GpuReader
    from jupyter_gpu_release.node.agent.gpu_use import UseMeter
    reader = GpuReader(nvml)
    meter = UseMeter(reader)
    order = StartOrder(run="r", payload=b"", folder="/", gpu_ids=["1"])
    meter.begin_sampling(order)
    reader.ask().result()
    state.write_text("gpu T4 GPU-1 500 100 40\\ngpu A100 GPU-2 1000 700 80\\n")
    deadline = time.monotonic() + 20
    while not meter.samples_taken(order.attempt_id) and time.monotonic() < deadline:
        time.sleep(0.05)
    state.write_text("gpu T4 GPU-1 500 100 40\\ngpu A100 GPU-2 1000 30 0\\n")
    use = asyncio.run(meter.end_sampling(order))
    answer = [use.peak_utilization, use.peak_memory_bytes, use.total_memory_bytes, use.left_bytes]
    """
    assert ask(_TWO.replace("A100 GPU-1 1000", "T4 GPU-1 500"), code) == [0.8, 700, 1000, 30]


def test_of_a_shared_gpu_only_the_runs_own_processes_count(ask: Ask) -> None:
    """A neighbour that uses nearly all of it changes nothing, and is not waited for. A look that fails is one look."""
    code = """
    import asyncio, os, time
    from jupyter_gpu_release.protocol.node import StartOrder
    from jupyter_gpu_release.host.gpu_reader import GpuReader
    from jupyter_gpu_release.node.agent.gpu_use import UseMeter
    from jupyter_gpu_release.node.agent.part_use import PartUse
    meter, own, words = UseMeter(GpuReader(nvml)), os.getpid(), []
    troubles = [OSError("no /proc")]

    def processes():
        if troubles:
            raise troubles.pop()
        return {own}

    order = StartOrder(run="r", payload=b"", folder="/", gpus=0.5, part_bytes=500 << 20, gpu_ids=["0"])
    meter.begin_sampling(order, PartUse(500 << 20, processes), words.append)
    neighbour = f"gpu A100 GPU-1 4000000000 1500000000 40\\nprocess 0 {os.getppid()} 300000000\\n"
    state.write_text(neighbour + f"process 0 {own} 1200000000\\n")
    deadline = time.monotonic() + 60
    while "interrupt" not in words and time.monotonic() < deadline:
        time.sleep(0.05)
    state.write_text(neighbour)

    async def end():
        await meter.wait_until_clear(order)
        return await meter.end_sampling(order)

    use = asyncio.run(end())
    answer = [words, use.peak_memory_bytes, use.total_memory_bytes >> 20, use.left_bytes, max(filter(None, use.memory))]
    """
    assert ask("gpu A100 GPU-1 4000000000 0 0\n", code) == [["warn", "interrupt"], 1_200_000_000, 500, 0, 100]


def test_a_device_is_handed_on_when_the_driver_shows_that_the_run_has_left_it(ask: Ask) -> None:
    """Not with the memory of others, nor for ever, nor for a driver that hangs."""
    code = """
    import asyncio, subprocess
    from jupyter_gpu_release.protocol.node import StartOrder
    from jupyter_gpu_release.host.gpu_reader import GpuReader
    from jupyter_gpu_release.node.agent import gpu_use
    child = subprocess.Popen(["true"])
    child.wait()
    clear = state.read_text()

    def show(used, *pids):
        text = f"gpu A100 GPU-1 80000000000 100 40\\ngpu A100 GPU-2 80000000000 {used} 0\\n"
        part = state.with_suffix(".part")
        part.write_text(text + "".join(f"process 1 {pid} {used}\\n" for pid in pids))
        os.replace(part, state)

    async def left_after(*holders, limit_s=3600.0, then=None):
        gpu_use.CLEAR_S = limit_s
        show(0)
        reader = GpuReader(nvml)
        meter = gpu_use.UseMeter(reader)
        order = StartOrder(run="r", payload=b"", folder="/", gpu_ids=["1"])
        meter.begin_sampling(order)
        await asyncio.wrap_future(reader.ask())
        show(1 << 30, *holders)
        leaving = asyncio.create_task(meter.wait_until_clear(order))
        if then is not None:
            for _ in range(20):
                await asyncio.wrap_future(reader.ask())
            assert not leaving.done()
            then()
        await leaving
        return (await meter.end_sampling(order)).left_bytes

    async def main():
        nobody_shown = await left_after(then=lambda: show(0))
        slow_to_go = await left_after(child.pid, then=lambda: show(0))
        with_others = await left_after(child.pid, os.getpid(), then=lambda: show(1 << 30, os.getpid()))
        others = await left_after(os.getpid())
        too_slow = await left_after(child.pid, limit_s=0.0)
        hangs = await left_after(child.pid, then=lambda: state.write_text("hang"))
        state.write_text(clear)
        return [nobody_shown, slow_to_go, with_others, others, too_slow, hangs]

    answer = asyncio.run(main())
    """
    assert ask(_TWO, code) == [0, 0, 1 << 30, 1 << 30, 1 << 30, None]


def test_a_driver_that_hangs_holds_up_nobody(ask: Ask) -> None:
    code = """
    import asyncio
    from jupyter_gpu_release.protocol.node import StartOrder
    from jupyter_gpu_release.host.gpu_reader import GpuReader
    from jupyter_gpu_release.node.agent.gpu_use import UseMeter
    reader = GpuReader(nvml)
    meter = UseMeter(reader)
    known = len(reader.ask().result())
    text = state.read_text()
    state.write_text("hang")
    orders = [StartOrder(run=f"r{n}", payload=b"", folder="/", gpu_ids=["1"]) for n in range(20)]
    for order in orders:
        meter.begin_sampling(order)

    async def ends():
        return [use.left_bytes for use in await asyncio.gather(*(meter.end_sampling(order) for order in orders))]

    left = asyncio.run(ends())
    was_silent, still_known = reader.silent_s > 0.5, len(reader.last)
    state.write_text(text)
    answer = [known, set(left) == {None}, was_silent, still_known, len(reader.ask().result(30)), reader.silent_s]
    """
    assert ask(_TWO, code) == [2, True, True, 2, 2, 0.0]


def test_without_a_driver_everything_is_empty() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    nvml = Nvml()
    assert (nvml.gpus(), nvml.memory_by_pid("0"), nvml.driver_version()) == ([], {}, "")
    assert nvml.problem
