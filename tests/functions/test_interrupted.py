"""An interrupt at any moment of ``launch`` leaves no run that nobody knows of."""

from __future__ import annotations

import pytest
from functions_bed import StartScript

# an alarm strikes as ■ does: at whatever bytecode it finds the main thread
_STRIKES = """
def strike(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)
launch(int).result()
longest = 0
for _ in range(5):
    began = time.perf_counter()
    launch(time.sleep, 600).cancel()
    longest = max(longest, time.perf_counter() - began)
struck = 0
for n in range(300):
    held = None
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + n / 300 * min(longest, 0.03))
        held = launch(time.sleep, 600)
        signal.setitimer(signal.ITIMER_REAL, 0)
        held.cancel()
    except KeyboardInterrupt:
        struck += 1
        if held is not None:  # it struck when the caller had the run already
            held.cancel()
print(json.dumps([struck, launch(int, gpus=4).result()]))  # all of them have given their GPUs back
"""


@pytest.mark.thorough
def test_an_interrupt_at_any_moment_leaves_no_run_behind(start: StartScript) -> None:
    (struck, zero), _ = start(_STRIKES).end(200)
    assert struck > 20
    assert zero == 0
