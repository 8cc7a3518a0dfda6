"""Tab and Shift+Tab through a real kernel, as front ends ask: ``complete_request`` and ``inspect_request``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kernel_outputs import Kernel

from jupyter_gpu_release.options.definitions import OPTIONS

_GPU = {"index": "0", "uuid": "u", "memory_bytes": 40 << 30, "used_bytes": 0, "utilization": 0.0, "state": "free"}
_STATUS = {
    "simulated": False,
    "nodes": [
        {"id": "a", "host": "a", "gpus": [_GPU | {"name": "NVIDIA A100-SXM4-40GB"} for _ in range(2)]},
        {"id": "b", "host": "b", "gpus": [_GPU | {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}]},
        {"id": "c", "host": "c", "up": False, "gpus": [_GPU | {"name": "NVIDIA V100"}]},
    ],
}
_ROW = {"gpus": 2, "name": "", "notebook": "work/digits.ipynb", "submitted_at": 0.0}
_RUNS = {
    "runs": [
        _ROW | {"run": "20261123-000003-aaaaaaaa", "state": "running", "name": "tuning"},
        _ROW | {"run": "20261123-000002-bbbbbbbb", "state": "failed"},
        _ROW | {"run": "20261123-000001-cccccccc", "state": "succeeded"},
    ]
}


_QUEUE = {"used": 3, "fair_share": 8, "waiting_runs": 2}
_QUEUES = {
    "default_queue": "text",
    "queues": [
        _QUEUE | {"name": "research", "usable": False},
        _QUEUE | {"name": "vision", "usable": True},
        _QUEUE | {"name": "text", "usable": True},
    ],
}


class Cluster:
    """A gateway that answers three questions; ``answers`` is cleared while it hangs."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.asked.set()
                cluster.answers.wait(60)
                known = {"/v1/runs": _RUNS, "/v1/queues": _QUEUES, "/v1/status": _STATUS}
                body = json.dumps(known[self.path.partition("?")[0]]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self._thread.join(60)
        self.server.server_close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def environment(home: dict[str, str], cluster: Cluster) -> dict[str, str]:
    """Of kernels that use this cluster (in place of the gateway that plays scripts)."""
    return {**home, "JUPYTER_GPU_URL": cluster.url, "JUPYTER_GPU_TOKEN": "t"}


class Typist:
    """Types code with ``|`` for the cursor."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def tab(self, text: str) -> dict[str, Any]:
        at = text.index("|")
        reply = self.kernel.client.complete(text.replace("|", ""), at, reply=True, timeout=60)
        assert reply["content"]["status"] == "ok"
        content: dict[str, Any] = reply["content"]
        assert content["cursor_end"] == at
        return content

    def matches(self, text: str) -> list[str]:
        return list(self.tab(text)["matches"])

    def help(self, text: str) -> str:
        at = text.index("|")
        reply = self.kernel.client.inspect(text.replace("|", ""), at, reply=True, timeout=60)["content"]
        return str(reply["data"].get("text/plain", "")) if reply["found"] else ""


@pytest.fixture(params=["typed completions", "plain completions"])
def typist(kernel: Kernel, request: pytest.FixtureRequest) -> Typist:
    """Of a kernel as it is, and of one whose front end gets the lines only (``use_experimental_completions``)."""
    typed = request.param == "typed completions"
    kernel.run(f"get_ipython().kernel.use_experimental_completions = {typed}")
    return Typist(kernel)


def test_options_and_their_values(typist: Typist, until: Callable[..., Any]):
    typist.kernel.run("model, data = 1, [2]")
    assert typist.matches("%%gpu_train --|\nfor x in y:") == [f"--{name}" for name in OPTIONS]
    assert typist.matches("%%gpu_train --g|") == ["--gpus", "--gpu-type", "--gpu-memory", "--gather"]
    assert "--gpus" not in typist.matches("%%gpu_train --gpus 2 |")
    assert typist.matches("%%gpu_train --on-disconnect |") == ["continue", "cancel"]
    assert typist.matches("%%gpu_train --priority h|") == ["high"]
    assert typist.matches("%%gpu_train --in model,|") == ["data"]
    assert typist.matches("%%gpu_sweep --m|")[:4] == ["--metric", "--max", "--min", "--max-gpus"]
    assert "model" in typist.matches("%%gpu_sweep --metric |\nscore = 1")
    assert typist.matches("%%gpu_sweep --pruner a|") == ["asha"]
    assert typist.matches("%%gpu_sweep --trials 8 --asy|") == []
    assert typist.help("%%gpu_sweep --trials|").startswith("--trials N\n")
    assert "search([64, 128, 256])" in typist.help("%%gpu_sweep| --trials 8\nx = 1")
    assert typist.matches("%gpu_config gpus=2 kee|") == ["keep="]
    assert typist.matches("%gpu_config keep=a|") == ["auto"]
    content = typist.tab("%%gpu_train --fresh gpu|\nimport os")
    assert content["matches"] == ["--gpus", "--gpu-type", "--gpu-memory"]
    assert content["cursor_start"] == len("%%gpu_train --fresh ")
    # those of the nodes that are up; the first list may come before they are known
    until(lambda: typist.matches("%%gpu_train --gpu-type |") == ["a100", "h100"], "the nodes' types")
    until(lambda: typist.matches("%%gpu_train --queue |") == ["vision", "text"], "the user's queues")
    assert typist.matches("%%gpu_train --gpus h|") == ["h100:1"]
    assert typist.matches("%%gpu_train --gpus |") == ["1", "2", "3", "a100:1", "h100:1", "0"]
    assert typist.matches("%%gpu_train --min-gpu-memory |") == ["40GiB", "80GiB"]


def test_nothing_is_invented(typist: Typist):
    """No Python keywords, no files of the folder, no options that do not exist."""
    typist.kernel.run("text = open('iffy.txt', 'w'); text.close()")
    for line in ("--timeout 3|", "--name i|", "--gpu-type x|", "--i|x", "nothing|", "--env i|", "--gpus 2 if|"):
        found = typist.matches(f"%%gpu_train {line}")
        assert set(found) <= {f"--{name}" for name in OPTIONS}, line
    for line in ("%gpu_status i|", "%gpu_config nothing=i|", "%gpu_wait |", "%gpu_cancel x|"):
        assert typist.matches(line) == [], line


def test_runs_with_what_they_were(kernel: Kernel, until: Callable[..., Any]):
    kernel.run("get_ipython().kernel.use_experimental_completions = True")
    typist = Typist(kernel)
    running, failed, succeeded = (row["run"] for row in _RUNS["runs"])
    until(lambda: typist.matches("%gpu_cancel |") == ["last", running], "the run that is not over")
    assert typist.matches("%gpu_attach 2|") == [running, failed, succeeded]
    assert typist.matches("%gpu_logs |") == ["last", running, failed, succeeded]
    assert typist.matches("%gpu_debug |") == ["last", failed]
    assert typist.matches(f"%gpu_debug {failed} |") == ["--rank"]
    told = typist.tab("%gpu_logs |")["metadata"]["_jupyter_types_experimental"]
    said = [each["type"].replace("\N{NO-BREAK SPACE}", " ") for each in told]
    assert said[:2] == ["the newest", "tuning · running · 2 GPUs · 01 Jan"]
    assert "digits.ipynb · failed" in said[2]


def test_code_is_completed_as_code(kernel: Kernel):
    kernel.run(
        "get_ipython().kernel.use_experimental_completions = True"
    )  # the lines alone are for IPython's own names
    typist = Typist(kernel)
    kernel.run("a_model = [1]")
    assert "a_model" in typist.matches("%%gpu_train --gpus 2\nfor i in a_m|")
    assert "a_model" in typist.matches("%gpu_train --gpus 2 a_m|")
    assert any(name.endswith("append") for name in typist.matches("%gpu_train a_model.app|"))
    assert "a_model" in typist.matches("gpus = a_m|")


def test_names_that_look_like_our_magics_are_code(kernel: Kernel):
    kernel.run("get_ipython().kernel.use_experimental_completions = True")
    typist = Typist(kernel)
    kernel.run("import collections\nfrom IPython.core.magic import register_line_magic as ours")
    kernel.run("@ours\ndef gpu_plot(line): pass")
    for start in (
        "gpu_name = ",
        "gpu_name: list = ",
        "gpu_status = ",
        "x = gpu_status + ",
        "gpu_runs += ",
        "%gpu_plot ",
    ):
        assert any(each.endswith("Counter") for each in typist.matches(f"{start}collections.Count|")), start
    kernel.run("timeout = 'the notebook has such a name, too'")
    assert "such a name" in typist.help("gpu_train = timeout|")
    assert typist.help("%gpu_train --timeout|").startswith("--timeout TIME\n")
    assert typist.matches("gpu_train --g|") == ["--gpus", "--gpu-type", "--gpu-memory", "--gather"]


def test_folders(kernel: Kernel):
    typist = Typist(kernel)
    kernel.run("import os; os.makedirs('my data/deep'); os.makedirs('mine')")
    for start in ("m|", '"m|', "'m|"):
        quote = start[0] if start[0] != "m" else '"'
        plain = "mine/" if start[0] == "m" else f"{quote}mine/"
        assert typist.matches(f"%%gpu_train --workdir {start}") == [plain, f"{quote}my data/"], start
    assert typist.matches('%%gpu_train --workdir "my data/|') == ['"my data/deep/']
    assert typist.matches("%%gpu_train --workdir ~nosuchuser/|") == []


def test_a_gateway_that_hangs_keeps_nobody_waiting(kernel: Kernel, cluster: Cluster):
    typist = Typist(kernel)
    cluster.answers.clear()
    assert typist.matches("%%gpu_train --gpus |") == ["1", "0"]
    assert typist.matches("%gpu_attach |") == []
    assert cluster.asked.wait(60)
    assert not cluster.answers.is_set(), "both lists came before its answer"


def test_help_on_an_option_and_on_the_magic(kernel: Kernel):
    typist = Typist(kernel)
    kernel.run("timeout = 'the notebook has such a name, too'")
    for line in ("%%gpu_train --gpus 2 --time|out 1h\nx = 1", "%%gpu_train --timeout 1|h", "%gpu_config timeo|ut=1h"):
        assert OPTIONS["timeout"].help in typist.help(line), line
    assert typist.help("%%gpu_train --timeout|").startswith("--timeout TIME\n")
    manual = typist.help("%%gpu_train| --gpus 2\n")
    assert (
        manual.index("%%gpu_train --gpus 2 --timeout 1h") < manual.index("jupyter gpu docs") < manual.index("--ranks R")
    )
    assert "--ranks R" in typist.help("%%gpu_train --gpus 2 |\n")
    assert "such a name" in typist.help("%%gpu_train --gpus 2\ntimeout|")


def test_a_terminal_completes_too(home: dict[str, str]):
    shell = """
import sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "jupyter_gpu_release")
with provisionalcompleter():
    found = list(shell.Completer.completions("%%gpu_train --on", 16))
print([(each.text, each.start, each.type) for each in found])
"""
    done = subprocess.run(
        [sys.executable, "-c", shell],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[('--on-disconnect', 12, 'when contact with this living kernel is lost')]"


def test_it_ends_with_the_extension(kernel: Kernel):
    typist = Typist(kernel)
    kernel.run("%unload_ext jupyter_gpu_release")
    assert "--gpus" not in typist.matches("%%gpu_train --g|")
    assert typist.help("%%gpu_train --gpus| 2") == ""
    kernel.run("%load_ext jupyter_gpu_release")
    assert "--gpus" in typist.matches("%%gpu_train --g|")
