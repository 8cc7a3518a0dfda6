"""``MappedFutures``: the futures that ``launch_map`` returns, and its beginning."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, overload

from ..errors import OptionError
from ..options.run_options import RunOptions
from .arguments import MapCall, options_as_text
from .executor import FunctionExecutor, describe_silence
from .future import RunFuture
from .item_future import ItemFuture
from .map_coordinator import MapCoordinator

T = TypeVar("T")
#: without GPUs nothing says how many processes the cluster has room for
_WITHOUT_GPUS = 8


class MappedFutures(Sequence[ItemFuture[T]], Generic[T]):
    """The futures of all items, in their order; each works as the one that ``launch`` returns.

    ``asyncio.gather(*mapped)``, ``concurrent.futures.wait(mapped)`` and the like work, and so does ``await mapped``,
    which is :meth:`results`.

    Attributes
    ----------
    workers : list of RunFuture
        The runs that carry the calls out: ``logs()``, ``id``, ``status``.
    """

    def __init__(self, name: str, futures: Sequence[ItemFuture[T]], coordinator: MapCoordinator | None) -> None:
        self.name = name
        self._futures = list(futures)
        self._coordinator = coordinator

    @property
    def workers(self) -> list[RunFuture[Any]]:
        """The runs that carry the calls out."""
        return list(self._coordinator.workers) if self._coordinator is not None else []

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, index: int) -> ItemFuture[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[ItemFuture[T]]: ...
    def __getitem__(self, index: int | slice) -> ItemFuture[T] | list[ItemFuture[T]]:
        return self._futures[index]

    def __repr__(self) -> str:
        counts = Counter(future.status for future in self._futures)
        done = sum(future.done() for future in self._futures)
        more = [f"{count} {status}" for status, count in sorted(counts.items()) if status != "succeeded"]
        return f"<map of {self.name}: {done} of {len(self)} done{''.join(f', {text}' for text in more)}>"

    # -------------------------------------------------------------------------------------- wait for it
    def done(self) -> bool:
        """Tell if all calls are over."""
        return all(future.done() for future in self._futures)

    def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[T]:
        """Wait for all calls and return their values, in the order of the items.

        ■ (Ctrl-C) while this waits cancels all of it.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for all together. None: without end.
        return_exceptions : bool
            Put the exception of an item that failed in its place. Without it the first one (in the order of the
            items) is raised; the other items go on.

        Raises
        ------
        TimeoutError
            Not all are done within ``timeout``; they go on.
        Exception
            What a call raised; a note names the item.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found: list[Any] = []
        try:
            for future in self._futures:
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                failure = future.exception(left_s)
                found.append(failure if failure is not None and return_exceptions else future.result())
        except KeyboardInterrupt:
            self.cancel()
            raise
        return found

    def as_completed(self, timeout: float | None = None) -> Iterator[ItemFuture[T]]:
        """The futures, each as soon as it is done: ``index``, ``item`` and ``result()`` say what came of which.

        ■ (Ctrl-C) while this waits cancels all of it.

        Parameters
        ----------
        timeout : float, optional
            Seconds for all of them together, from the first one on. None: without end.

        Raises
        ------
        TimeoutError
            Not all are done within ``timeout``; they go on.
        """
        try:
            yield from concurrent.futures.as_completed(self._futures, timeout)  # type: ignore[misc]
        except KeyboardInterrupt:
            self.cancel()
            raise

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    async def _all(self) -> list[T]:
        return list(await asyncio.gather(*(_result(future) for future in self._futures)))

    # ------------------------------------------------------------------------------------------ end it
    def cancel(self) -> bool:
        """Take out what waits, and interrupt the calls under way; the second call kills.

        Returns
        -------
        bool
            At once. False: all are over already.
        """
        if self._coordinator is None or self.done():
            return False
        self._coordinator.cancel()
        return True


async def _result(future: ItemFuture[T]) -> T:
    return await future


def start_map(
    executor: FunctionExecutor, call: MapCall, own: Mapping[str, Any], processes: int | None, *, stream: bool
) -> MappedFutures[Any]:
    """Send the workers; raises as :meth:`.FunctionExecutor.start` does."""
    options = executor.parse_options(options_as_text(own))
    _check(options, processes)
    items, name = call.args[0], options.name or call.name
    if not items:
        return MappedFutures(name, [], None)
    submission = executor.prepare(call, options, stream=stream)
    session = executor.session()
    made: list[MapCoordinator] = []
    futures: list[ItemFuture[Any]] = [
        ItemFuture(executor, name, index, item, lambda n: made[0].take_out(n), partial(describe_silence, session))
        for index, item in enumerate(items)
    ]
    coordinator = MapCoordinator(executor, submission, name, futures, executor.output_listener(live=stream))
    made.append(coordinator)
    total = session.welcome.gpus_most if session.welcome is not None else 1
    coordinator.begin(min(len(items), processes or places(options.ask.gpus, total)))
    return MappedFutures(name, futures, coordinator)


def places(gpus: float, total: int) -> int:
    """The number of workers that the cluster has GPUs for."""
    return max(1, int(total / gpus)) if gpus else _WITHOUT_GPUS


def _check(options: RunOptions, processes: int | None) -> None:
    if processes is not None and (isinstance(processes, bool) or not isinstance(processes, int) or processes < 1):
        raise OptionError(
            f"processes={processes!r}: not a number of processes", hint="write processes=4, or leave it out"
        )
    if options.ask.ranks > 1 or options.ask.ps or options.ask.evaluator or options.gather:
        raise OptionError(
            "launch_map() calls the function in one process at a time: no ranks, ps or gather",
            hint="launch() starts a gang: [launch(f, item, ranks=4) for item in items]",
        )
    if options.retries:
        raise OptionError(
            "launch_map() hands each item out once: no retries",
            hint="launch() retries: [launch(f, item, retries=2) for item in items]",
        )
    if options.restartable:
        raise OptionError(
            "launch_map() hands each item out once: not restartable",
            hint="launch() goes on later: [launch(f, item, restartable=True) for item in items]",
        )
    if options.detach:
        raise OptionError(
            "launch_map() hands out its items from here: detach would leave nobody to do that",
            hint="launch one function with detach=True that loops over the items",
        )
