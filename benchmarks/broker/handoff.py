"""A run ends while another one waits for its GPUs: from the last statement of the one to the first of the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..bed import bed, kernel

_CELL = "import time\nbegan_{i} = time.time()\ntime.sleep(0.1)\nended_{i} = time.time()"
#: all at once, and each wants all GPUs
_SEND = "for cell in {cells!r}:\n    get_ipython().run_cell_magic('gpu_train', '--gpus 4 --async', cell)"


def measure(count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of our handoffs between two notebooks' cells, and of Ray's between placement groups that wait."""
    with bed() as cluster:
        with kernel(cluster.work) as ann, kernel(cluster.work) as bob:
            for notebook in (ann, bob):
                notebook.run("%%gpu_train --gpus 4\nimport time")
            for notebook in (ann, bob):
                notebook.run(_SEND.format(cells=[_CELL.format(i=i) for i in range(count)]))
            for notebook in (ann, bob):
                notebook.run("%gpu_wait", limit_s=600)
            names = ", ".join(f"(began_{i}, ended_{i})" for i in range(count))
            spans = [tuple(span) for notebook in (ann, bob) for span in notebook.value(f"[{names}]")]
        return gaps_ms(spans), gaps_ms(cluster.compete(["pending_groups"], count)["pending_groups"])


def gaps_ms(spans: Sequence[Sequence[float]]) -> list[float]:
    """From the end of each span to the beginning of the next one."""
    return [(after[0] - before[1]) * 1000 for before, after in itertools.pairwise(sorted(spans))]
