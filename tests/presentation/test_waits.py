"""What a persisting run waits for, in words."""

from __future__ import annotations

import time

from jupyter_gpu_release.presentation.wording import describe_wait
from jupyter_gpu_release.protocol.runs import PersistWait

PATH = "/store/runs/r/values.graph"


def test_the_first_try_is_no_problem() -> None:
    assert describe_wait(PersistWait(PATH, 3 << 30)) == f"writing 3 GiB to {PATH}"


def test_a_full_disk_is_said_with_path_bytes_free_and_the_next_try() -> None:
    at_s = time.time() + 60
    wait = PersistWait(PATH, 1 << 30, "No space left on device", 8 << 20, "disk", 3, at_s)
    assert describe_wait(wait) == (
        f"1 GiB of results cannot be written to {PATH} (No space left on device, 8 MiB free); "
        "kept on the node's own disk, next try at " + time.strftime("%H:%M:%S %Z", time.localtime(at_s))
    )


def test_results_of_a_node_that_is_away_are_said_to_be_there() -> None:
    text = describe_wait(PersistWait(PATH, 1 << 20, "waiting for gpu-box", kept="gone"))
    assert text == f"1 MiB of results for {PATH} are kept by a node that is away (waiting for gpu-box)"
