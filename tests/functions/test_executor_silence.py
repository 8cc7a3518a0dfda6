"""A launched function whose gateway does not answer (here: nobody listens at its port) is not believed to be well."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import RunLostError
from jupyter_gpu_release.functions import executor, future
from jupyter_gpu_release.functions.executor import FunctionExecutor
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.protocol.runs import RunView

RUN = "20260101-000000-00000001"


@pytest.fixture
def session() -> Iterator[GatewaySession]:
    made = GatewaySession(Target("http://127.0.0.1:9", "token"), "s")
    yield made
    made.close()


def test_it_is_said_to_who_looks_and_to_who_waits(
    session: GatewaySession, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(executor, "_WORTH_SAYING_S", 0.001)
    monkeypatch.setattr(future, "_LOOK_S", 0.01)
    asked = threading.Event()

    def silence() -> str:
        text = executor.describe_silence(session)
        if text:
            asked.set()
        return text

    def launch() -> RunFuture[None]:
        return RunFuture(cast(FunctionExecutor, None), RunView(RUN, "ann", "running"), "fit", print, silence)

    run = launch()
    assert (repr(run), run.running()) == (f"<run {RUN} of fit: running>", True)
    session.follow(RUN)
    until(lambda: executor.describe_silence(session), "the session finds nobody")
    words = "the gateway http://127.0.0.1:9 has not answered for "
    assert repr(run).startswith(f"<run {RUN} of fit: running ({words}")
    with pytest.raises(TimeoutError, match=f"run {RUN} of fit is running after 0 s; {words}"):
        run.result(0)
    waits: list[tuple[Callable[[RunFuture[None]], None], str]] = [
        (RunFuture.result, "result(timeout=…)"),
        (lambda run: asyncio.run(_await(run)), "asyncio.wait_for(run, …)"),
    ]
    for wait, limit in waits:
        run = launch()
        asked.clear()
        ended = threading.Thread(target=lambda run=run: (asked.wait(20), run.give_up(RunLostError("gone"))))
        ended.start()
        said = re.escape(f"run {RUN} of fit may go on and is waited for: {limit} limits that")
        with pytest.warns(UserWarning, match=f"{words}.*{said}"), pytest.raises(RunLostError):
            wait(run)
        ended.join()
    assert (repr(run), run.running()) == (f"<run {RUN} of fit: lost>", False)


async def _await(run: RunFuture[None]) -> None:
    await run


def test_contact_that_is_lost_while_a_watch_ends_is_watched_again(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(executor, "has_ended", lambda _target: True)
    watch = executor.LostContactWatch()
    losing = threading.Thread(target=lambda: watch.on_contact_lost(cast(GatewaySession, session)))

    class Session:
        """Connected for one look, in which contact is lost again."""

        target = None

        @property
        def connected(self) -> bool:
            if losing.ident is not None:
                return False
            losing.start()
            losing.join(0.2)  # it must not get through before the look is noted
            return True

    session = Session()
    run: RunFuture[None] = RunFuture(cast(FunctionExecutor, None), RunView(RUN, "ann", "running"), "fit", print, str)
    watch.watch_run(run)
    watch.on_contact_lost(cast(GatewaySession, session))
    until(run.done, "the run of a cluster that ended is given up")
    with pytest.raises(RunLostError, match="this machine's own cluster ended"):
        run.result(0)
