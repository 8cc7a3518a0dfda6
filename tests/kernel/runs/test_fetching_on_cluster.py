# ruff: noqa: E501 - a cell is one string
"""Names that are too large to go along are fetched while the cell runs: real kernel, real gateway, real ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]

#: a value whose pickling waits for a file, or fails
_SLOW = """
import os, time
import numpy as np
class Slow:
    def __reduce__(self):
        while not os.path.exists("go"):
            time.sleep(0.01)
        return Slow, ()
class Never:
    def __reduce__(self):
        raise TypeError("this cannot be pickled")
slow, never = np.empty(200_000, object), np.empty(200_000, object)
slow[:], never[:] = None, None
slow[0], never[0] = Slow(), Never()
"""


@pytest.fixture
def kernel(take_kernel: MakeKernel, home: dict[str, str], cluster: Ready) -> Kernel:
    made = take_kernel({**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)})
    made.run("%config GpuRelease.implicit_send_max = '1MiB'")
    return made


def run_of(cell: Any) -> str:
    facts = [m["content"]["metadata"].get("jupyter_gpu_release") for m in cell if m["msg_type"].endswith("data")]
    return str(facts[-1]["run"])


def test_what_it_asks_for_comes_and_is_an_input_like_others(kernel: Kernel, cluster: Ready):
    kernel.run("%%gpu_train\nimport numpy as np\nmade = np.zeros(1 << 18)", 60)  # 2 MiB
    kernel.run(
        "shared = ['notebook']\nbig = {'x': made, 'l': shared, 'deep': [0]}\nalias, deep, x, unused = big, big['deep'], made, np.ones(1 << 18)\n"
        "def pick(name):\n    return globals()[name]",
        60,
    )
    cell = kernel.run(
        "%%gpu_train\nshared.append('cell')\nfound = pick('b' + 'ig')\nsame = found['l'] is shared, found is pick('bi' + 'g'), float(found['x'][5])\n"
        "found['x'][0] = 7; found['deep'].append(1)\nview = found['x'][1:3]",
        60,
    )
    assert cell.reply["status"] == "ok", cell.traceback
    assert "fetched if the cell asks for it: `made` (2 MiB), `big` (2 MiB), `alias` (2 MiB), " in cell.text("stderr")
    assert "fetched while running: big (2 MiB)" in "".join(cell.plain())
    assert kernel.value("same") == "(True, True, 0.0)"
    facts = (
        "big is alias, big['x'] is x, float(x[0]), deep is big['deep'], deep, shared, big['l'] is shared, found is big"
    )
    assert kernel.value(f"({facts})") == "(True, True, 7.0, True, [0, 1], ['notebook', 'cell'], True, True)"
    assert kernel.run("view[0] = 3").reply["status"] == "ok"
    assert kernel.value("float(x[1])") == "3.0"
    with GatewayClient.for_target(
        Target(cluster.connection.url, read_secret(Path(cluster.connection.token_file)))
    ) as gateway:
        lineage = gateway.lineage(run_of(cell))
        assert "big" in {each.name for each in lineage.facts.used}


def test_a_value_that_cannot_be_sent_is_named_and_another_still_comes(kernel: Kernel):
    kernel.run(_SLOW + "open('go', 'w').close()\nname = 'never'")
    cell = kernel.run(
        "%%gpu_train\ntry:\n    globals()[name[:] + '']\nexcept NameError as error:\n    said = str(error)\nkind = type(globals()['sl' + 'ow'][0]).__name__",
        60,
    )
    assert cell.reply["status"] == "ok", cell.traceback
    assert kernel.value("kind") == "'Slow'"
    said = kernel.value("said")
    assert "`never` (1.5 MiB) is in the notebook and was not sent" in said
    assert "this cannot be pickled" in said
    assert ": --in +never" in said


def test_in_the_background_it_is_named_before(kernel: Kernel):
    kernel.run("import numpy as np\nbig = np.zeros(1 << 18)")
    cell = kernel.run("%%gpu_train --async\nfound = list(globals())", 60)
    assert "not sent: `big` (2 MiB) (--in +NAME sends one)" in cell.text("stderr")
    assert "fetched" not in cell.text("stderr")
    kernel.run("%gpu_wait", 60)


def test_an_interrupt_while_the_kernel_prepares_it(kernel: Kernel, until: Any):
    kernel.run(_SLOW)
    message = kernel.start("%%gpu_train\nprint('begun', flush=True)\neval('sl' + 'ow')")
    while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    kernel.manager.interrupt_kernel()
    outputs = kernel.finish(message)
    assert outputs.error["ename"] == "KeyboardInterrupt"
    kernel.run("open('go', 'w').close()")
    assert kernel.run("%%gpu_train\nkind = type(eval('sl' + 'ow')[0]).__name__", 60).reply["status"] == "ok"
    assert kernel.value("kind") == "'Slow'"


def test_ranks_of_a_gang_ask_and_it_is_made_once(kernel: Kernel):
    kernel.run(
        "import numpy as np\nclass Counted:\n    made = 0\n    def __reduce__(self):\n        type(self).made += 1\n        return Counted, ()\n"
        "big = np.empty(200_000, object)\nbig[:] = None\nbig[0] = Counted()\nbig[1] = [0]"
    )
    cell = kernel.run(
        "%%gpu_train --gpus 2 --ranks 2 --gather sizes\nfrom jupyter_gpu_release import ranks\nsizes = len(eval('b' + 'ig'))\nbig[1].append(ranks.rank)",
        60,
    )
    assert cell.reply["status"] == "ok", cell.traceback
    assert kernel.value("(sizes, big[1])") == "([200000, 200000], [0, 0])"
