"""Sending a function and taking its result in, with a session that is this test."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from jupyter_gpu_release.analysis.device_choices import DeviceHistory
from jupyter_gpu_release.cell_api.context import ExecutionContext, set_context
from jupyter_gpu_release.client import autostart
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.feed import ConnectionBack, ConnectionLost, FeedItem
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import (
    CannotSendError,
    GatewayUnavailableError,
    ImpossibleAskError,
    OptionError,
    RunLostError,
    StoreError,
    WrongCallError,
)
from jupyter_gpu_release.functions import executor as executor_module
from jupyter_gpu_release.functions import script
from jupyter_gpu_release.functions.api import GpuFunction, gpu, launch, launch_map
from jupyter_gpu_release.functions.arguments import Call, MapCall
from jupyter_gpu_release.functions.executor import FunctionExecutor, RunEventHandler, Show
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.functions.map_worker import await_items, call_items
from jupyter_gpu_release.functions.mapped_futures import start_map
from jupyter_gpu_release.options.definitions import Written
from jupyter_gpu_release.options.run_options import RunOptions, build_options
from jupyter_gpu_release.protocol.cell import RESULT, CellPayload, CellSource, Graph
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.rest import EventsPage
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunRequest, RunView
from jupyter_gpu_release.protocol.session import Accepted, Events, Refused, Update
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.submission.capture import CapturedInputs, InputCapture
from jupyter_gpu_release.submission.location import CellLocation
from jupyter_gpu_release.submission.request import Submission
from jupyter_gpu_release.unpickling import Trust

Answer = Callable[[RunRequest, Callable[[FeedItem], None]], None]


def _accept(request: RunRequest, hear: Callable[[FeedItem], None]) -> None:
    hear(Accepted(RunView(request.run, "ann", "queued")))


class Bed(FunctionExecutor):
    """An executor and its session at once; ``answer``: the gateway's answer to what is submitted."""

    session_id = "s"
    target = Target("http://gateway.test", "token", True)
    trouble = None
    connected = True
    silent_s = 0.0

    def __init__(self, answer: Answer = _accept) -> None:
        names: dict[str, Any] = {}
        realm = NamespaceInfo(names, at_home=True)
        super().__init__(realm, InputCapture(names, realm), DeviceHistory(names, list))
        self.welcome = SimpleNamespace(gpus_most=6, packages="", python="")
        self.answer = answer
        self.signals: list[tuple[str, str]] = []
        self.requests: list[RunRequest] = []
        self.live: list[bool] = []
        self.shown: list[Event] = []

    # ------------------------------------------------------------------------------- the session's side
    def submit(self, request: RunRequest, hear: Callable[[FeedItem], None], *, while_unsent: object) -> None:
        self.requests.append(request)
        self.answer(request, hear)

    def signal(self, run: str, signal: str) -> None:
        self.signals.append((run, signal))

    def question_client(self) -> NoReturn:
        pytest.fail("its cluster builds no environments")

    # ------------------------------------------------------------------------------ the executor's side
    def session(self) -> GatewaySession:
        return cast(GatewaySession, self)

    def parse_options(self, written: Written) -> RunOptions:
        return build_options(written)

    def location(self) -> CellLocation:
        return CellLocation()

    def source_texts(self, prepared: CapturedInputs) -> Sequence[CellSource]:
        return []

    def output_listener(self, *, live: bool) -> Show:
        self.live.append(live)
        return self.shown.extend


def _double(x: int) -> int:
    return 2 * x


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    set_context(ExecutionContext(realm=lambda: made.realm, find_target=None, launcher=lambda: made))
    yield made
    set_context(None)


# ------------------------------------------------------------------------------------------------------ send
def test_the_calls_options_and_arguments_are_sent(bed: Bed) -> None:
    run = launch(indent, "a", kwargs={"prefix": "b"}, gpus=2, name="mine", stream=True)
    [request] = bed.requests
    payload = decode(request.payload, CellPayload)
    assert (request.run, run.name, run.status, request.ask.gpus, request.session) == (run.id, "mine", "queued", 2, "s")
    assert (payload.function, payload.terminal, bed.live) == ("indent", False, [True])
    assert payload.source == "result = __gpu_function__(__gpu_argument_0__, **{'prefix': __gpu_argument_1__})"
    sent = codec.load(
        payload.inputs.stream, payload.inputs.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN
    ).values
    assert (sent["__gpu_argument_0__"], sent["__gpu_argument_1__"], payload.out) == ("a", "b", [RESULT])
    launch(gpu(gpus=4)(indent), "a", "b", gpus=1)
    launch(gpu(gpus=4)(indent), "a", "b")
    assert [request.ask.gpus for request in bed.requests] == [2, 1, 4]
    calls = [(request.name, request.call) for request in bed.requests]
    assert calls == [("mine", "indent('a', prefix='b')"), *[("indent", "indent('a', 'b')")] * 2]
    assert bed.live == [True, False, False]
    assert bed.signals == []


def test_what_the_gateway_refuses_is_raised_and_its_inputs_are_taken_back(bed: Bed, tmp_path: Path) -> None:
    bed.answer = lambda request, hear: hear(Refused(request.run, "impossible_ask", "the cell is one too many", "wait"))
    paths = create_run_folder(tmp_path, new_run_id())
    submission = bed.prepare(Call(len, ["a"]), build_options({}))
    with pytest.raises(ImpossibleAskError, match="the function is one too many"):
        bed.send(Submission(submission.request, submission.prepared, paths), "f", bed.shown.extend)
    assert not paths.folder.exists()
    assert bed.signals == []  # there is nothing to end


def test_a_run_that_nobody_would_know_of_is_killed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while it is being sent; a gateway that does not answer."""

    def strike(_request: RunRequest, _hear: object) -> None:
        raise KeyboardInterrupt

    bed.answer = strike
    with pytest.raises(KeyboardInterrupt):
        launch(len, "a")
    monkeypatch.setattr(executor_module, "_ACCEPT_S", 0.01)
    bed.answer = lambda _request, _hear: None
    with pytest.raises(GatewayUnavailableError, match=r"gateway\.test has not answered for 0 s"):
        launch(len, "a")
    assert bed.signals == [(request.run, "kill") for request in bed.requests]


@pytest.mark.parametrize(("granted_at", "is_kept"), [(None, False), (5.0, True)])
def test_inputs_of_a_run_that_had_no_turn_are_taken_back(
    bed: Bed, tmp_path: Path, granted_at: float | None, is_kept: bool
) -> None:
    paths = create_run_folder(tmp_path, new_run_id())
    submission = bed.prepare(Call(len, ["a"]), build_options({}))
    heard: list[Callable[[FeedItem], None]] = []
    bed.answer = lambda request, hear: (heard.append(hear), _accept(request, hear))[1]
    run = bed.send(Submission(submission.request, submission.prepared, paths), "f", bed.shown.extend)
    called: list[object] = []
    heard[0](Update(RunView(run.id, "ann", "cancelled", granted_at=granted_at, seq=2)))
    run.add_done_callback(called.append)
    executor_module._withdraw_unused(paths.folder, run)
    assert (paths.folder.exists(), called) == (is_kept, [run])


def test_restartable_is_for_one_process(bed: Bed) -> None:
    with pytest.raises(OptionError, match="restartable with ranks"):
        launch(len, "a", gpus=2, ranks=2, restartable=True)
    assert bed.requests == []
    launch(len, "a", restartable=True)
    assert bed.requests[0].restartable is True


# ------------------------------------------------------------------------------------------------ hear of it
def _handler(show: Show = lambda _: None) -> tuple[RunFuture[Any], RunEventHandler, list[str]]:
    run: RunFuture[Any] = RunFuture(cast(Any, None), RunView("r", "ann", "submitted"), "f", print)
    lost: list[str] = []
    return run, RunEventHandler(run, show, lambda: lost.append("lost")), lost


def test_contact_that_is_lost_ends_a_run_only_where_it_is_lost_for_good() -> None:
    run, hear, lost = _handler()
    hear(Accepted(RunView("r", "ann", "running")))
    hear(ConnectionLost(GatewayUnavailableError("away")))
    hear(ConnectionBack())
    assert (run.done(), lost, run.status, hear.refusal) == (False, ["lost"], "running", None)
    hear(ConnectionLost(GatewayUnavailableError("closed"), final=True))
    assert (run.done(), lost) == (True, ["lost"])
    with pytest.raises(GatewayUnavailableError, match="closed"):
        run.result(0)


def test_a_run_that_the_gateway_has_forgotten_is_lost() -> None:
    run, hear, _ = _handler()
    hear(Accepted(RunView("r", "ann", "running")))
    hear(Refused("r", "no_such_run", "there is no run r", "look"))
    assert (run.status, hear.refusal) == ("lost", None)
    error = run.exception(0)
    assert isinstance(error, RunLostError)
    assert error.hint == "look"


def test_output_that_cannot_be_shown_does_not_end_the_session(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_events: Sequence[Event]) -> None:
        raise ValueError("I/O operation on closed file")

    run, hear, _ = _handler(fails)
    hear(Events("r", [Event(1, 0.0, "stream", {"text": "x"})]))
    assert not run.done()
    assert "output of run r could not be shown" in caplog.text


# ------------------------------------------------------------------------------------------------- come back
def _view(values: dict[str, Any] | None = None, **outcome: Any) -> RunView:
    graph = None
    if values is not None:
        dump = codec.dump(values, NamespaceInfo({}, at_home=True))
        graph = Graph(stream=dump.stream, buffers=[bytes(each) for each in dump.buffers])
    return RunView("r", "ann", "succeeded", outcome=Outcome("ok", values=graph, **outcome))


def test_the_value_or_why_there_is_none(bed: Bed) -> None:
    assert bed.value_of(_view({RESULT: [1, 2]}), "f") == [1, 2]
    with pytest.raises(StoreError, match="run r of f left no result: the disk is full; really"):
        bed.value_of(_view(notes=["the disk is full", "really"]), "f")
    notes = ["other", f"`{RESULT}`: a lock (not returned)"]
    with pytest.raises(CannotSendError, match=r"what f\(\) returned cannot leave its process: `result`: a lock\n"):
        bed.value_of(_view({"other": 1}, notes=notes), "f")
    with pytest.raises(CannotSendError, match="it cannot be pickled"):
        bed.value_of(_view({"other": 1}), "f")


def test_the_traceback_there_is_the_cause_of_a_users_exception_only(bed: Bed) -> None:
    lines = ["\x1b[31mline 1\x1b[39m", "line 2"]
    of_user = _view(error=ErrorInfo("ValueError", "x", lines))
    assert str(bed.with_traceback(ValueError("x"), of_user).__cause__) == "\nline 1\nline 2"
    ours = _view(error=ErrorInfo("RunFailedError", "x", lines, code="run_failed"))
    assert bed.with_traceback(ValueError("x"), ours).__cause__ is None


def test_logs_are_read_page_by_page(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(_client: GatewayClient, run: str, after: int) -> EventsPage:
        event = Event(after + 1, 0.0, "stream", {"name": "stdout", "text": f"line {after}\n"})
        return EventsPage(run, "running", after + 1, after < 2, [event])

    monkeypatch.setattr(GatewayClient, "events", page)
    assert bed.logs("r") == "line 0\nline 1\nline 2\n"


# ------------------------------------------------------------------------------------------------ launch_map
@pytest.mark.parametrize(
    ("items", "own", "workers"),
    [
        (9, {}, 6),
        (9, {"gpus": 4}, 1),
        (9, {"gpus": 3}, 2),
        (9, {"gpus": 100}, 1),
        (9, {"gpus": 0}, 8),
        (3, {}, 3),
        (9, {"processes": 2}, 2),
        (3, {"processes": 7}, 3),
    ],
)
def test_as_many_workers_as_there_is_work_and_room_for(bed: Bed, items: int, own: dict[str, Any], workers: int) -> None:
    mapped = launch_map(abs, range(items), **own)
    assert (len(mapped.workers), len(mapped), len(bed.requests)) == (workers, items, workers)
    assert mapped[1].item == 1
    assert mapped.cancel()


@pytest.mark.parametrize(
    "own",
    [
        {"processes": 0},
        {"processes": True},
        {"processes": 1.5},
        {"gpus": 2, "ranks": 2},
        {"gpus": 2, "ranks": 2, "ps": 1},
        {"gather": True},
        {"retries": 1},
        {"restartable": True},
        {"detach": True},
    ],
    ids=str,
)
def test_what_a_map_cannot_do_is_refused_with_what_can(bed: Bed, own: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        launch_map(abs, [1], **own)
    assert caught.value.hint
    assert bed.requests == []


def test_when_one_worker_is_refused_the_others_do_not_go_on(bed: Bed) -> None:
    def answer(request: RunRequest, hear: Callable[[FeedItem], None]) -> None:
        if len(bed.requests) < 3:
            _accept(request, hear)
        else:
            hear(Refused(request.run, "impossible_ask", "too many"))

    bed.answer = answer
    with pytest.raises(ImpossibleAskError):
        launch_map(abs, range(4), processes=4)
    assert bed.signals == [(request.run, "interrupt") for request in bed.requests[:2]]


@pytest.mark.parametrize("wait", [lambda mapped: mapped.results(), lambda mapped: list(mapped.as_completed())])
def test_an_interrupt_while_one_waits_for_a_map_ends_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Any], object], until: Callable[..., None]
) -> None:
    mapped = start_map(bed, MapCall(abs, [[1, 2, 3]]), {}, 1, stream=False)

    def strike(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.as_completed", strike)
    monkeypatch.setattr(type(mapped[0]), "exception", strike)
    with pytest.raises(KeyboardInterrupt):
        wait(mapped)
    monkeypatch.undo()
    until(mapped.done, "all items are over")
    assert {item.status for item in mapped} == {"cancelled"}
    until(lambda: bed.signals == [(bed.requests[0].run, "interrupt")], "the worker is told")


def test_the_workers_loop_awaits_what_is_to_be_awaited(bed: Bed) -> None:
    async def later(item: int, factor: int) -> int:
        return item * factor

    call = MapCall(later, [[1, 2]], {"factor": 3})
    assert call.statement.startswith("result = await ")
    assert list(call.values.values()) == [await_items, later, [1, 2], {"factor": 3}]
    plain = MapCall(abs, [[1]], {})
    assert (plain.statement.startswith("result = __gpu"), plain.values["__gpu_function__"]) == (True, call_items)
    with pytest.raises(WrongCallError, match="missing a required argument: 'factor'"):
        launch_map(later, [1])
    launch_map(pow, [1], kwargs={"exp": 2}, processes=1)
    payload = decode(bed.requests[0].payload, CellPayload)
    sent = codec.load(
        payload.inputs.stream, payload.inputs.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN
    ).values
    assert sent["__gpu_keywords__"] == {"exp": 2}


class Exchange:
    """Hands out three items, the second of which fails."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, object]] = []

    def item_numbers(self) -> Iterator[int]:
        return iter([2, 0, 1])

    def send_value(self, item: int, value: object) -> None:
        self.sent.append((item, value))

    def send_error(self, item: int, error: BaseException) -> None:
        self.sent.append((item, type(error).__name__))


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_worker_calls_with_the_item_of_each_number_and_goes_on_after_an_error(is_awaited: bool) -> None:
    import asyncio

    def work(item: str, end: str = "") -> str:
        if item == "a":
            sys.exit(3)
        return item + end

    async def later(item: str, end: str = "") -> str:
        return work(item, end)

    exchange = Exchange()
    with pytest.raises(RuntimeError, match="on the cluster only"):
        call_items(work, ["a"], {})
    set_context(ExecutionContext(realm=dict, find_target=None, items=lambda: exchange))
    try:
        if is_awaited:
            asyncio.run(await_items(later, ["a", "b", "c"], {"end": "!"}))
        else:
            call_items(work, ["a", "b", "c"], {"end": "!"})
    finally:
        set_context(None)
    assert exchange.sent == [(2, "c!"), (0, "SystemExit"), (1, "b!")]


# ------------------------------------------------------------------------------------------------ @gpu, scripts
class Model:
    """Has a method that runs on the cluster."""

    scale = 3

    @gpu(gpus=2)
    def fit(self, x: int) -> int:
        return self.scale * x


def test_a_method_is_bound_and_a_function_of_a_module_travels_by_its_name(bed: Bed) -> None:
    assert Model().fit.local(4) == 12
    assert Model().fit.options == {"gpus": 2}
    assert isinstance(Model.fit, GpuFunction)
    assert pickle.loads(pickle.dumps(Model.fit)) is Model.fit
    kind, (function, options) = cast(tuple[Any, Any], gpu(gpus=2)(_double).__reduce__())
    assert (kind, function, options) == (GpuFunction, _double, {"gpus": 2})


def test_in_a_run_it_is_an_ordinary_call_and_nothing_is_launched(bed: Bed) -> None:
    set_context(ExecutionContext(realm=lambda: bed.realm, find_target=None, launcher=lambda: bed, in_run=True))
    assert gpu(_double)(4) == 8
    with pytest.raises(OptionError, match="it holds its GPUs already"):
        launch(len, "a")
    with pytest.raises(WrongCallError):
        launch(_double)
    assert bed.requests == []


def test_without_a_cluster_a_script_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path))
    began: list[object] = []
    monkeypatch.setattr(autostart, "start_local_cluster", lambda say, options: began.append(options))
    executor = script.ScriptExecutor()
    settings = SimpleNamespace(
        auto_start="never", start_options=["--gpus", "2"], url="", token_file="", store="", ca_file="", defaults={}
    )
    monkeypatch.setattr(script, "load_settings", lambda _shell: settings)
    with pytest.raises(GatewayUnavailableError, match="auto_start is 'never'"):
        executor.session()
    assert began == []
    settings.auto_start = "local"
    with pytest.raises(GatewayUnavailableError, match="left no connection file"):
        executor.session()
    assert began == [["--gpus", "2"]]


def test_a_script_shows_output_where_it_belongs(capfd: pytest.CaptureFixture[str]) -> None:
    events = [
        Event(1, 0.0, "stream", {"name": "stdout", "text": "out\n"}),
        Event(2, 0.0, "stream", {"name": "stderr", "text": "err\n"}),
        Event(3, 0.0, "error", {"ename": "E", "evalue": "", "traceback": ["twice"]}),
    ]
    script._print(events)
    assert capfd.readouterr() == ("out\n", "err\n")
