"""Each sign of work by itself, what a conversation tells, and how samples become observations."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_release.host.gpus import Gpu, GpuProcess
from jupyter_gpu_release.protocol.rest import (
    GatewayFacts,
    GpuCounts,
    GpuPart,
    GpuRow,
    NodeRow,
    RunRow,
    StatusDocument,
    WarmRow,
)
from jupyter_gpu_release.server_extension.culling.idle_tracker import Track
from jupyter_gpu_release.server_extension.culling.policy import Observation, Signal
from jupyter_gpu_release.server_extension.culling.signals import (
    Thresholds,
    conversation_signal,
    cpu_signal,
    gpu_signal,
    held_bytes,
    leases_of,
    run_signal,
)
from jupyter_gpu_release.server_extension.monitoring.attribution import GpuHolding, Owner
from jupyter_gpu_release.server_extension.monitoring.kernels import Conversation

_LIMITS = Thresholds(gpu=0.03, cpu_cores=0.1)
IDLE, BUSY = (Signal("cell", False),), (Signal("cell", True),)


def _held(share: float | None, used: int | None = 10) -> list[GpuHolding]:
    return [GpuHolding(0, "GPU-0", GpuProcess(1, used, share), Owner.KERNEL, "k")]


def test_a_gpu_is_as_busy_as_the_process_or_else_as_the_whole_gpu() -> None:
    quiet, loud, mute = Gpu(0, utilization=0.0), Gpu(0, utilization=0.9), Gpu(0)
    assert gpu_signal(_held(0.5), {0: quiet}, _LIMITS)[0].busy is True
    assert gpu_signal(_held(0.0), {0: loud}, _LIMITS)[0].busy is False  # somebody else's work
    assert gpu_signal(_held(None), {0: loud}, _LIMITS)[0].busy is True
    assert gpu_signal(_held(None), {0: quiet}, _LIMITS) == (Signal("gpu", False, "its GPUs are idle"), 0.0)
    assert gpu_signal(_held(None), {0: mute}, _LIMITS)[0].busy is None
    assert gpu_signal(_held(None), {0: mute}, Thresholds(unknown_use_is_busy=False))[0].busy is False
    assert gpu_signal([], {0: loud}, _LIMITS)[0].busy is False
    other = GpuHolding(1, "GPU-1", GpuProcess(1, 10, 0.01), Owner.KERNEL, "k")
    assert gpu_signal([*_held(None), other], {0: mute, 1: quiet}, _LIMITS)[0].busy is None, "one does not tell"
    assert gpu_signal([*_held(0.02), other], {0: quiet, 1: quiet}, _LIMITS)[1] == 0.02


def test_cpu_between_two_samples() -> None:
    def cpu(before: Any, now: Any) -> bool | None:
        return cpu_signal(before, now, _LIMITS).busy

    assert cpu((10.0, (1.0, 5.0)), (12.0, (1.0, 5.1))) is False
    assert cpu((10.0, (1.0, 5.0)), (12.0, (1.0, 6.0))) is True
    assert cpu(None, (12.0, (1.0, 6.0))) is None
    assert cpu((10.0, (1.0, 5.0)), None) is None
    assert cpu((10.0, (1.0, 5.0)), (12.0, (11.5, 9.0))) is None  # another process
    assert cpu((10.0, (1.0, 5.0)), (12.0, (1.0, 4.0))) is None  # a child ended
    assert cpu((12.0, (1.0, 5.0)), (12.0, (1.0, 5.0))) is None  # the clock stood still


def _status(*runs: RunRow, gpus: tuple[GpuRow, ...] = ()) -> StatusDocument:
    nodes = [NodeRow("n", "h", list(gpus))]
    return StatusDocument(1, True, GatewayFacts("u", "0"), GpuCounts(1, 1, 0, 0), nodes, [], list(runs))


_RUN = RunRow("r1", "ann", "running", notebook="lab/a.ipynb")


def test_a_kernel_that_waits_for_a_run_is_at_work() -> None:
    status = _status(_RUN)
    assert run_signal("k1", "lab/a.ipynb", status, current=True).busy is True
    assert run_signal("k1", "/data/ann/lab/a.ipynb", status, current=True).busy is True
    assert run_signal("k1", "b.ipynb", status, current=True).busy is False
    assert run_signal("k1", "lab/a.ipynb", status, current=False).busy is None  # the gateway fell silent
    assert run_signal("k1", "b.ipynb", status, current=False).busy is False
    assert run_signal("k1", "a.ipynb", None, current=False).busy is False
    of_script = _status(msgspec.structs.replace(_RUN, notebook=""))
    assert run_signal("k1", "", of_script, current=True).busy is False


def test_a_run_that_names_its_kernel_protects_no_namesake() -> None:
    status = _status(msgspec.structs.replace(_RUN, kernel="k1"))
    assert run_signal("k1", "", status, current=True).busy is True
    assert run_signal("k2", "lab/a.ipynb", status, current=True).busy is False


def test_what_jupyter_is_about_to_do_is_not_idle() -> None:
    for state in ("restarting", "autorestarting", "terminating"):
        assert conversation_signal((False, ""), state).busy is None
    assert conversation_signal((None, ""), "starting").busy is None
    assert conversation_signal((False, ""), "starting").busy is False  # it has answered: Jupyter did not hear of it
    assert conversation_signal((False, ""), "busy").busy is False  # its busy and idle are not trusted
    assert conversation_signal((True, ""), "idle").busy is True


def test_sizes_that_are_not_told() -> None:
    assert held_bytes(_held(0.0) + _held(0.0)) == 20
    assert held_bytes(_held(0.0) + _held(0.0, None)) is None
    assert held_bytes([]) == 0


def _row(state: str, user: str = "ann", use: float | None = 0.5) -> GpuRow:
    return GpuRow("0", "u", "n", 1, 1, use, state, user, "r1")


def test_leases_of_ones_own_users() -> None:
    seen = leases_of(_status(_RUN, gpus=(_row("running", use=0.2), _row("running", use=0.4))), {"ann"})
    assert list(seen) == ["r1"]
    assert seen["r1"].signals[0].busy is True
    assert abs((seen["r1"].utilization or 0) - 0.3) < 1e-9
    assert leases_of(_status(gpus=(_row("warm"),)), {"ann"})["r1"].signals[0].busy is False
    # part of it works: it works
    assert leases_of(_status(gpus=(_row("warm"), _row("running"))), {"ann"})["r1"].signals[0].busy is True
    assert leases_of(_status(gpus=(_row("warm"), _row("warm", use=None))), {"ann"})["r1"].utilization is None
    assert leases_of(_status(gpus=(_row("warm", user="bob"),)), {"ann"}) == {}
    shared = msgspec.structs.replace(_row("running"), parts=[GpuPart("r0", "bob", 0.5), GpuPart("r1", "ann", 0.5)])
    assert list(leases_of(_status(_RUN, gpus=(shared,)), {"ann"})) == ["r1"]
    kept = WarmRow("r1", "r1", "ann", 1, since=0.0, until=1000.0, queue="exam", notebook="a.ipynb")
    warm = msgspec.structs.replace(_status(gpus=(_row("warm"),)), warm=[kept])
    found = leases_of(warm, {"ann"}, clock_s=-900.0)["r1"]
    assert (found.queue, found.path, found.ends_at_s) == ("exam", "a.ipynb", 100.0)


def _say(
    talk: Conversation, state: str, request: str, now_s: float, what: str = "execute_request", who: str = "u"
) -> None:
    talk.on_message(
        {"msg_type": "status"}, {"msg_id": request, "msg_type": what, "session": who}, {"execution_state": state}, now_s
    )


def test_a_conversation_counts_requests_not_states() -> None:
    talk = Conversation(0.0)
    assert talk.busy()[0] is None
    talk.main_shell_answered = True
    _say(talk, "busy", "main", 1.0)
    _say(talk, "busy", "subshell", 2.0)
    _say(talk, "idle", "subshell", 3.0)
    assert talk.busy()[0] is True
    _say(talk, "idle", "main", 9.0)
    assert (talk.busy()[0], talk.last_activity_s) == (False, 9.0)


def test_an_answer_counts_once_what_is_begun_will_be_heard_of() -> None:
    """IOPub may be connected later than the shell: a cell that is begun in between is not heard of."""
    talk = Conversation(0.0)
    talk.answered()
    assert talk.busy()[0] is None
    _say(talk, "busy", "1", 1.0, what="kernel_info_request")
    assert talk.busy()[0] is None
    talk.answered()
    assert talk.busy()[0] is False
    talk.restarted(2.0)
    talk.answered()
    assert talk.busy()[0] is None


def test_an_end_that_was_lost_is_found_by_asking_the_main_shell() -> None:
    """What a subshell does, and what was begun behind the question, the answer says nothing of."""
    talk = Conversation(0.0)
    _say(talk, "busy", "lost", 1.0)
    aside = {"msg_id": "aside", "msg_type": "execute_request", "subshell_id": "s"}
    talk.on_message({"msg_type": "status"}, aside, {"execution_state": "busy"}, 2.0)
    assert not talk.is_doubtful(6.9)
    assert talk.is_doubtful(7.0)
    asked = set(talk.open)
    _say(talk, "busy", "newer", 7.5)
    talk.answered(asked)
    assert set(talk.open) == {"aside", "newer"}
    _say(talk, "idle", "newer", 8.0)
    assert not talk.is_doubtful(100.0), "nothing of the main shell's is open"
    assert talk.busy()[0] is True
    _say(talk, "idle", "aside", 9.0)
    assert (talk.busy()[0], talk.in_subshells) == (False, set())


def test_tools_and_our_own_requests_are_nobodys_work() -> None:
    talk = Conversation(0.0, own_sessions={"ours"})
    talk.main_shell_answered = True
    _say(talk, "busy", "1", 5.0, what="kernel_info_request")
    _say(talk, "busy", "2", 6.0, who="ours")
    shown = {"msg_id": "2", "msg_type": "execute_request", "session": "ours"}
    talk.on_message({"msg_type": "stream"}, shown, {}, 6.5)
    assert (talk.busy()[0], talk.last_activity_s) == (False, 0.0)
    _say(talk, "busy", "3", 7.0, what="comm_msg")  # a widget's callback
    assert talk.busy()[0] is True


def test_a_restart_forgets_what_was_open() -> None:
    talk = Conversation(0.0)
    talk.main_shell_answered = True
    _say(talk, "busy", "1", 5.0)
    talk.on_message({"msg_type": "debug_event"}, {}, {"event": "initialized"}, 5.5)
    talk.on_message({"msg_type": "status"}, {}, {"execution_state": "starting"}, 6.0)
    assert talk.open == {}
    assert talk.busy()[0] is None  # it has not answered yet


def test_idle_samples_in_a_row_and_the_clock() -> None:
    track = Track("k", "kernel", 0.0)
    track.add(BUSY, 10.0)
    assert (track.idle_samples, track.busy_since_s) == (0, 10.0)
    track.acted_at_s = 11.0  # it was told that it used little
    track.add(IDLE, 12.0)
    track.add(IDLE, 14.0)
    assert (track.idle_samples, track.idle_since_s, track.busy_since_s) == (2, 10.0, None)
    assert track.acted_at_s is None
    track.warned_at_s = track.acted_at_s = 15.0
    # a cell so short that no sample saw it
    track.add(IDLE, 16.0, active_s=15.5)
    assert (track.idle_samples, track.idle_since_s, track.warned_at_s, track.acted_at_s) == (3, 15.5, None, None)
    track.add(IDLE, 17.0, active_s=15.0)
    assert track.idle_since_s == 15.5
    track.add((Signal("gpu", None),), 18.0)
    assert (track.idle_samples, track.idle_since_s) == (0, 18.0)


def test_a_warning_that_was_answered_or_that_nobody_could_answer_comes_again() -> None:
    track = Track("k", "kernel", 0.0)
    track.add(IDLE, 2.0)
    track.warned_at_s = 3.0
    track.keep_until(100.0)
    assert (track.warned_at_s, track.keep_until_s) == (None, 100.0)
    track.warned_at_s = 4.0
    track.add(IDLE, 60.0)  # the server stood still
    assert (track.warned_at_s, track.idle_samples) == (None, 1)


def test_the_mean_use_needs_a_whole_window_of_samples() -> None:
    track = Track("r", "lease", 0.0)
    for second in range(0, 21, 2):
        track.add(BUSY, float(second), use=0.2 if second < 10 else 0.4, window_s=10.0)
    assert track.window_s == 10.0
    assert abs((track.utilization or 0) - 0.4) < 1e-9
    track.add(BUSY, 22.0, use=None, window_s=10.0)
    assert (track.utilization, track.window_s) == (None, 0.0)
    track.add(BUSY, 24.0, use=0.25, window_s=10.0)
    assert track.utilization == 0.25


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(0, 10)), max_size=30))
def test_idle_samples_never_outlive_a_sign_of_work(samples: list[tuple[bool | None, float]]) -> None:
    track, now_s, row = Track("k", "kernel", 0.0), 0.0, 0
    for busy, step_s in samples:
        now_s += step_s
        track.add((Signal("s", busy),), now_s)
        row = row + 1 if busy is False else 0
        assert track.idle_samples == row
        assert track.idle_since_s <= now_s
        if busy is not False:
            assert track.idle_since_s == now_s


def test_use_at_its_limit_is_idle() -> None:
    limits = Thresholds(gpu=0.25, cpu_cores=0.5)
    assert gpu_signal(_held(0.25), {0: Gpu(0)}, limits)[0].busy is False
    assert gpu_signal(_held(0.26), {0: Gpu(0)}, limits)[0].busy is True
    assert cpu_signal((10.0, (1.0, 5.0)), (12.0, (1.0, 6.0)), limits).busy is False
    assert cpu_signal((10.0, (1.0, 5.0)), (12.0, (1.0, 6.25)), limits).busy is True
    assert cpu_signal((10.0, (1.0, 5.0)), (12.0, (1.0, 5.0)), limits).busy is False, "no CPU at all is idle, too"


def test_a_track_is_observed_as_it_is() -> None:
    track = Track("k", "kernel", 1.0)
    track.add(IDLE, 2.0, use=0.25, window_s=60.0)
    track.add(IDLE, 4.0, use=0.75, window_s=60.0)
    track.warned_at_s, track.acted_at_s, track.keep_until_s, track.suspended = 5.0, 6.0, 7.0, True
    seen = track.observe(IDLE, held_bytes=10, connections=3, protected="user:ann", ends_at_s=8.0)
    assert seen == Observation(
        subject="k",
        kind="kernel",
        signals=IDLE,
        held_bytes=10,
        idle_samples=2,
        idle_since_s=1.0,
        busy_since_s=None,
        connections=3,
        utilization=0.5,
        window_s=2.0,
        warned_at_s=5.0,
        keep_until_s=7.0,
        acted_at_s=6.0,
        suspended=True,
        protected="user:ann",
        ends_at_s=8.0,
    )
    track.add(BUSY, 5.0)
    assert track.observe(BUSY, held_bytes=None).busy_since_s == 5.0


def test_samples_are_in_a_row_unless_the_server_stood_still() -> None:
    track = Track("k", "kernel", 0.0)
    for now_s in (0.0, 15.0, 30.0):
        track.add(IDLE, now_s)
    assert track.idle_samples == 3
    track.add(IDLE, 45.5)
    assert track.idle_samples == 1


def test_a_gpu_that_no_run_of_the_status_has_is_held() -> None:
    seen = leases_of(_status(gpus=(_row("running"),)), {"ann"})["r1"]
    assert seen.signals == (Signal("run", True, "its run is held"),)
    assert (seen.queue, seen.path, seen.ends_at_s) == ("", "", None)
    known = leases_of(_status(msgspec.structs.replace(_RUN, queue="exam"), gpus=(_row("running"),)), {"ann"})["r1"]
    assert (known.user, known.queue, known.path) == ("ann", "exam", "lab/a.ipynb")
    assert known.signals[0].words == "its run is running"
