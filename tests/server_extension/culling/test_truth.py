"""Which kernel holds what, and whether it is busy: real servers, real kernels, fake GPUs under the real pynvml."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server_kernel_bed import ServerKernel
from websockets.sync.client import connect

from ..conftest import StartServer

Until = Callable[[Callable[[], object], str], None]


@pytest.fixture(scope="module")
def shared(start_shared: StartServer) -> Iterator[ServerKernel]:
    kernel = ServerKernel(*start_shared(cull_idle_timeout=0))
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(shared: ServerKernel, until: Until) -> ServerKernel:
    """The module's kernel, idle and holding nothing."""
    assert shared.gpus is not None
    shared.gpus.let_go()
    until(lambda: not shared.row()["busy"] and not shared.row()["used_bytes"], "idleness without a GPU")
    return shared


def test_a_kernels_memory_is_its_own(kernel: ServerKernel, until: Until) -> None:
    pid = kernel.holds(5000)
    until(lambda: kernel.row()["used_bytes"] == 5000, "the kernel's memory")
    until(lambda: kernel.row()["path"], "its notebook, which Jupyter notes some time after the start")
    row = kernel.row()
    assert row["gpus"] == [{"index": 0, "uuid": "GPU-0", "used_bytes": 5000, "pids": [pid]}]
    assert (row["path"], row["name"]) == ("a.ipynb", "python3")
    gpu = kernel.bed.get("status")["gpus"][0]
    assert (gpu["name"], gpu["used_bytes"], gpu["unattributed_bytes"], gpu["power_w"]) == ("H100", 5000, 0, 70.0)


def test_workers_are_the_kernels_also_in_a_session_of_their_own(kernel: ServerKernel, until: Until) -> None:
    assert kernel.gpus is not None
    code = f"""
import subprocess, sys, os
program = {kernel.gpus.open_device!r} + "; import time; time.sleep(1000)"
child = subprocess.Popen([sys.executable, "-c", program])
own = "import os, sys\\nif os.fork() == 0:\\n    os.setsid(); print(os.getpid(), flush=True)\\n    exec(sys.argv[1])"
left = subprocess.Popen([sys.executable, "-c", own, program], stdout=subprocess.PIPE, text=True)
away = int(left.stdout.readline()); left.wait()
answer = [child.pid, away]
"""
    child, away = kernel.run(code)
    kernel.gpus.show(f"process 0 {child} 100", f"process 1 {away} 30", "process 1 999999 7")
    until(lambda: kernel.row()["used_bytes"] == 130, "both workers' memory")
    assert [gpu["pids"] for gpu in kernel.row()["gpus"]] == [[child], [away]]
    assert kernel.bed.get("status")["gpus"][1]["unattributed_bytes"] == 7
    kernel.run("import os\nchild.kill(); child.wait(); os.kill(away, 9); answer = None")


def test_what_a_terminal_runs_is_the_terminals(kernel: ServerKernel, tmp_path: Path, until: Until) -> None:
    bed, gpus, said = kernel.bed, kernel.gpus, tmp_path / "pid"
    assert gpus is not None
    name = bed.http.post("/api/terminals").json()["name"]
    url = f"{bed.url.replace('http', 'ws')}/terminals/websocket/{name}"
    with connect(url, additional_headers={"Authorization": f"token {bed.token}"}, proxy=None) as socket:
        script = f"sh -c 'exec 9<{gpus.device}; echo $$ > {said}; read end'"
        socket.send(json.dumps(["stdin", f"{script}\n"]))
        until(lambda: said.exists() and said.read_text().strip(), "the terminal's script")
        gpus.show(f"process 1 {said.read_text().strip()} 300", used=300)
        until(lambda: 'held_bytes{owner="terminal"} 300.0' in bed.http.get("/metrics").text, "the terminal's memory")
    assert bed.get("status")["gpus"][1]["unattributed_bytes"] == 0
    assert kernel.row()["used_bytes"] == 0
    assert bed.http.delete(f"/api/terminals/{name}").status_code == 204


def test_a_gpu_that_is_lost_and_a_driver_that_goes_degrade_the_answer(kernel: ServerKernel, until: Until) -> None:
    assert kernel.gpus is not None
    pid = kernel.holds(5000)
    until(lambda: kernel.row()["used_bytes"] == 5000, "the kernel's memory")
    kernel.gpus.show(f"process 0 {pid} 5000", "lost 1")
    until(lambda: kernel.bed.get("status")["gpus"][1]["problem"], "the lost GPU")
    assert "gpu 1" in [problem["what"] for problem in kernel.bed.get("status")["problems"]]
    assert kernel.bed.get("health")["ok"]
    kernel.gpus.show("error 9")
    until(lambda: "nvml" in [p["what"] for p in kernel.bed.get("status")["problems"]], "the driver's loss")
    kernel.gpus.show(f"process 0 {pid} 400", used=400)
    until(lambda: kernel.row()["used_bytes"] == 400, "the driver's return")


def test_a_cell_a_gpu_and_a_cpu_make_it_busy(kernel: ServerKernel, tmp_path: Path, until: Until) -> None:
    kernel.holds(5000)
    until(lambda: not kernel.row()["busy"], "idleness")
    runs = tmp_path / "runs"
    kernel.begin(f"import time\nopen({str(runs)!r}, 'w').close()\nwhile True: time.sleep(0.05)")
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    until(runs.exists, "its own statements: an interrupt that comes before them is dropped")
    assert kernel.bed.http.post(f"/api/kernels/{kernel.id}/interrupt").status_code == 204
    until(lambda: not kernel.row()["busy"], "idleness after the interrupt")
    kernel.holds(5000, share=60)
    until(lambda: "GPU 0 is 60% busy" in kernel.row()["why"], "the busy GPU")
    kernel.holds(5000)
    until(lambda: not kernel.row()["busy"], "idleness of the GPU")
    kernel.run(
        "import threading\nworking = True\ndef work():\n    while working: pass\n"
        "thread = threading.Thread(target=work); thread.start(); answer = None"
    )
    until(lambda: "cores" in kernel.row()["why"], "the background thread's CPU")
    kernel.run("working = False; thread.join(); answer = None")
    until(lambda: not kernel.row()["busy"], "idleness of the CPU")


def test_a_subshell_request_hides_no_running_cell(kernel: ServerKernel, until: Until) -> None:
    """Jupyter's own execution_state says idle here."""
    kernel.begin("import time\nstop = False\nwhile not stop: time.sleep(0.05)")
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    client = kernel.client
    message = client.session.msg("create_subshell_request")
    client.control_channel.send(message)
    subshell = client.get_control_msg(timeout=60)["content"]["subshell_id"]
    request = client.session.msg(
        "execute_request",
        {
            "code": "1",
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        },
    )
    request["header"]["subshell_id"] = subshell
    client.shell_channel.send(request)
    until(
        lambda: kernel.bed.http.get(f"/api/kernels/{kernel.id}").json()["execution_state"] == "idle",
        "the state that misleads",
    )
    assert kernel.row()["busy"]
    assert "a cell is running" in kernel.row()["why"]
    request = client.session.msg(
        "execute_request",
        {
            "code": "stop = True",
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        },
    )
    request["header"]["subshell_id"] = subshell
    client.shell_channel.send(request)
    until(lambda: not kernel.row()["busy"], "the end of the cell")


def test_an_attached_debugger_counts_as_work(kernel: ServerKernel, until: Until) -> None:
    until(lambda: not kernel.row()["busy"], "idleness")
    control = kernel.client

    def debug(command: str, number: int, **arguments: object) -> None:
        content = {"type": "request", "command": command, "seq": number, "arguments": arguments}
        control.control_channel.send(control.session.msg("debug_request", content))
        assert control.get_control_msg(timeout=60)["content"]["success"]

    who = {"clientID": "test", "adapterID": "", "linesStartAt1": True, "columnsStartAt1": True, "pathFormat": "path"}
    debug("initialize", 1, **who)
    debug("attach", 2)
    until(lambda: kernel.row()["why"] == "a debugger is attached", "the debugger")
    debug("disconnect", 3, restart=False, terminateDebuggee=False)
    until(lambda: not kernel.row()["busy"], "the debugger's end")


def test_a_restarted_kernel_begins_anew(kernel: ServerKernel, until: Until) -> None:
    kernel.holds(5000)
    until(lambda: kernel.row()["used_bytes"] == 5000, "the kernel's memory")
    kernel.begin("import time; time.sleep(1000)")
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    assert kernel.bed.http.post(f"/api/kernels/{kernel.id}/restart").status_code == 200
    until(lambda: kernel.row()["used_bytes"] == 0, "the end of the old process")
    until(lambda: not kernel.row()["busy"], "idleness of the new one")
    kernel.wait_ready()


@pytest.mark.thorough
def test_an_end_that_nobody_heard_is_found(kernel: ServerKernel, until: Until) -> None:
    """IOPub drops what a server does not read in time: here the end of the cell, too."""
    done = kernel.bed.folder / "said-it-all"
    kernel.bed.process.send_signal(signal.SIGSTOP)
    try:
        kernel.begin(
            f"from IPython.display import display\nfor n in range(20_000): display(n)\nopen({str(done)!r}, 'w').close()"
        )
        until(done.exists, "all that the kernel says")
    finally:
        kernel.bed.process.send_signal(signal.SIGCONT)
    kernel.wait_ready()
    until(lambda: not kernel.row()["busy"], "the end of a cell whose last words are lost")


def test_a_dead_kernel_is_forgotten(kernel: ServerKernel, until: Until) -> None:
    other = ServerKernel(kernel.bed, path="b.ipynb")
    until(lambda: kernel.bed.kernel(other.id), "the kernel")
    other.close()
    assert kernel.bed.http.delete(f"/api/kernels/{other.id}").status_code == 204
    until(lambda: kernel.bed.kernel(other.id) is None, "its end")
    assert kernel.bed.get("health")["ok"]


def test_figures_are_on_jupyters_metrics(kernel: ServerKernel, until: Until) -> None:
    kernel.holds(5000)
    until(lambda: kernel.row()["used_bytes"] == 5000, "the kernel's memory")
    text = kernel.bed.http.get("/metrics").text
    assert 'jupyter_gpu_memory_bytes{gpu="0",kind="used"} 5000.0' in text
    assert 'jupyter_gpu_held_bytes{owner="kernel"} 5000.0' in text
    assert "jupyter_gpu_gateway_up 0.0" in text
    assert 'jupyter_gpu_temperature_celsius{gpu="1"} 40.0' in text
