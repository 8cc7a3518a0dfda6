"""The calls that users make: ``launch``, ``launch_map`` and ``@gpu``."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from .. import streams
from ..cell_api import context
from ..errors import OptionError, WrongCallError
from .arguments import Call, MapCall, TrialCall, divide_keywords, hint_to_gpu, hint_to_launch, options_as_text
from .future import RunFuture

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

    from .executor import FunctionExecutor
    from .mapped_futures import MappedFutures
    from .search_space import Space
    from .sweep import Sweep

P = ParamSpec("P")
T = TypeVar("T")


def launch(
    function: Callable[..., T],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    stream: bool = False,
    **keywords: Any,
) -> RunFuture[T]:
    """Send a function to the cluster and return at once, from a notebook or a plain script.

    It returns once the run is committed.

    What it prints is recorded (``run.logs()``); its random numbers are its own; its arguments do not come back.

    Parameters
    ----------
    function : callable
        What it reads of its module or notebook goes along, as for a cell. ``async def`` is awaited there.
    *args
        Its arguments.
    kwargs : mapping, optional
        Keyword arguments of the function that are called like an option.
    stream : bool
        Show what it prints while it runs: in a notebook below this cell, in a script on stdout and stderr.
    **keywords
        Options, called as those of ``%%gpu_train`` (``gpus=1, ranks=…, cpus=…, memory="8GiB", timeout="2h", wait=…,
        name=…, env={…}, detach=True, send="api_token" …``); every other one is the function's.

    Returns
    -------
    RunFuture
        A future: ``result()``, ``status``, ``cancel()``, ``logs()``, ``id``; ``await run`` works, too.

    Raises
    ------
    CannotSendError
        The function or something that it needs cannot be sent: what, and why. Nothing was queued.
    WrongCallError
        The function cannot be called like that (it is a TypeError, too).
    OptionError
        An option is wrong, or a keyword could be launch's or the function's.
    ImpossibleAskError, MissingPackageError, GatewayUnavailableError
        The cluster cannot do that, or there is none.
    """
    target = function if not isinstance(function, GpuFunction) else function.__wrapped__
    defaults = dict(function.options) if isinstance(function, GpuFunction) else {}
    own, given = divide_keywords(target, args, kwargs or {}, keywords) if callable(target) else ({}, keywords)
    try:
        call = Call(target, args, given, hint_to_launch)
    except WrongCallError as error:
        raise error.with_traceback(None) from None  # the caller's line is what is wrong
    return _launcher().start(call, {**defaults, **own}, stream=stream)


def launch_map(
    function: Callable[..., T],
    items: Iterable[Any],
    /,
    *,
    processes: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    stream: bool = False,
    **keywords: Any,
) -> MappedFutures[T]:
    """Call ``function(item)`` on the cluster for each item: many calls in each of a few processes.

    Each process is a run with GPUs of its own. It takes the next item when it is done with one, and ends when none is
    left. Its calls share the process, as those of a loop do: what one call changes in globals or modules the next one
    finds changed.

    Parameters
    ----------
    function : callable
        As for :func:`launch`.
    items : iterable
        The values, one for each call. All of them go to each process, as they are now.
    processes : int, optional
        How many processes work at a time, at most. Default: as many as the cluster has GPUs for, with
        nodes that a Slurm pool may borrow (8 without GPUs).
    kwargs : mapping, optional
        Keyword arguments for each call that are called like an option.
    stream : bool
        Show what the calls print while they run.
    **keywords
        Options as for :func:`launch`, for each process; every other one is the function's. Not ``ranks``, ``ps``,
        ``gather`` and ``detach``.

    Returns
    -------
    MappedFutures
        The futures of all items in their order: ``results()``, ``as_completed()``, ``await``, ``cancel()``, ``len``.

    Raises
    ------
    CannotSendError
        The function or an item cannot be sent: what, and why. Nothing was queued.
    WrongCallError, OptionError, ImpossibleAskError, MissingPackageError, GatewayUnavailableError
        As for :func:`launch`.
    """
    from .mapped_futures import start_map

    target = function if not isinstance(function, GpuFunction) else function.__wrapped__
    defaults = dict(function.options) if isinstance(function, GpuFunction) else {}
    values = list(items)
    own, given = divide_keywords(target, [None], kwargs or {}, keywords) if callable(target) else ({}, keywords)
    try:
        call = MapCall(target, [values], given, hint_to_launch)
    except WrongCallError as error:
        raise error.with_traceback(None) from None  # the caller's line is what is wrong
    return start_map(_launcher(), call, {**defaults, **own}, processes, stream=stream)


def sweep(
    function: Callable[..., Any],
    space: Space,
    /,
    *,
    metric: str = "value",
    mode: str = "min",
    trials: int | None = None,
    max_gpus: int | None = None,
    max_failures: int = 10,
    sampler: BaseSampler | None = None,
    pruner: BasePruner | str | None = None,
    study: Study | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Sweep:
    """Search for good parameters: each trial is a run of ``function(**parameters)``.

    It returns once the first is committed. Optuna chooses the parameters. The trials
    have low priority and are restartable, unless the options say otherwise.

    Parameters
    ----------
    function : callable
        As for :func:`launch`. It returns a number, or a dict that has ``metric``.
    space : dict, list of dicts, or callable
        Parameter to ``(low, high)``, ``(low, high, "log")`` or a list of choices; settings, each tried once; or a
        function that gets Optuna's trial and returns a dict.
    metric, mode : str
        What is made as small (``"min"``) or large (``"max"``) as can be.
    trials : int, optional
        How many. Default: all points of a space that has an end.
    max_gpus : int, optional
        GPUs that the trials hold together, at most.
    max_failures : int
        So many failed trials end the sweep.
    sampler, pruner, study : optional
        Optuna's. ``pruner`` may be "asha", "hyperband" or "median": it ends trials early by what they
        :func:`report`. A study of yours goes on; with ``detach`` or a name one in memory is copied, which is said.
    kwargs : mapping, optional
        Keyword arguments of the function that are called like an option.
    **keywords
        Options as for :func:`launch`, for each trial; every other one is the function's. ``detach=True``: a run on the
        cluster chooses the parameters, and the sweep outlives this process.

    Returns
    -------
    Sweep
        ``result()``, ``best``, ``trials`` (a DataFrame), ``load(trial)``, ``cancel()``, ``study``.

    Raises
    ------
    OptionError
        The space, the study or an option is wrong.
    MissingPackageError
        Optuna is not installed here, or the cluster lacks a package.
    CannotSendError, WrongCallError, ImpossibleAskError, GatewayUnavailableError
        As for :func:`launch`.
    """
    from .search import Search
    from .sweep import start_sweep

    target = function if not isinstance(function, GpuFunction) else function.__wrapped__
    defaults = dict(function.options) if isinstance(function, GpuFunction) else {}
    searched = dict.fromkeys(space) if isinstance(space, Mapping) else {}
    own, given = divide_keywords(target, (), {**searched, **(kwargs or {})}, keywords)
    fixed = {
        name: value for name, value in given.items() if name not in searched or name in {**keywords, **(kwargs or {})}
    }
    search = Search(metric, mode, trials, max_gpus, max_failures, sampler, pruner, study)
    try:
        call = TrialCall(target, (), fixed, hint_to_launch)
        return start_sweep(_launcher(), call, {**defaults, **own}, space, search)
    except (WrongCallError, OptionError) as error:
        raise error.with_traceback(None) from None  # the caller's line is what is wrong


@streams.named
class GpuFunction(Generic[P, T]):
    """A function that runs on the cluster when it is called; inside a GPU cell or a launched function right there.

    Attributes
    ----------
    options : dict
        Those of ``@gpu(…)``, as they were given.
    __wrapped__ : callable
        The function itself.
    """

    def __init__(self, function: Callable[P, T], options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.__wrapped__ = function
        functools.update_wrapper(self, function)
        if inspect.iscoroutinefunction(function) and sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on the cluster and return what it returns.

        Raises
        ------
        Exception
            What the function raised, with its traceback there; else as :meth:`launch` and :meth:`.RunFuture.result`.
        """
        if _is_in_run():
            return self.local(*args, **kwargs)
        try:
            launched = self.launch(*args, **kwargs)
        except WrongCallError as error:
            raise error.with_traceback(None) from None
        if inspect.iscoroutinefunction(self.__wrapped__):
            return cast("T", _awaited(launched))  # T is the coroutine, as for the function itself
        return launched.result()

    def launch(self, *args: P.args, **kwargs: P.kwargs) -> RunFuture[T]:
        """Send it and return at once. All arguments are the function's.

        Returns
        -------
        RunFuture
            As :func:`launch` returns it.

        Raises
        ------
        CannotSendError, WrongCallError, OptionError, ImpossibleAskError, GatewayUnavailableError
            As :func:`launch` does; nothing is queued then.
        """
        try:
            call = Call(self.__wrapped__, args, kwargs, hint_to_gpu)
        except WrongCallError as error:
            raise error.with_traceback(None) from None
        return _launcher().start(call, self.options)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in this process, without a GPU of the cluster; returns and raises what the function does."""
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> GpuFunction[..., T]:
        """As a method."""
        if instance is None:
            return self
        return GpuFunction(self.__wrapped__.__get__(instance, owner), self.options)

    def __reduce__(self) -> Any:
        """By name where it is a module's, so that it is the same function there; else with its function."""
        module = sys.modules.get(getattr(self, "__module__", "") or "")
        if module is not None and module.__name__ != "__main__":
            found: Any = module
            qualname: str = getattr(self, "__qualname__", "")
            for part in qualname.split("."):
                found = getattr(found, part, None)
            if found is self:
                return qualname
        return GpuFunction, (self.__wrapped__, self.options)

    def __repr__(self) -> str:
        return f"<gpu function {getattr(self, '__qualname__', self.__wrapped__)}>"


async def _awaited(launched: RunFuture[Any]) -> Any:
    return await launched


@overload
def gpu(function: Callable[P, T], /) -> GpuFunction[P, T]: ...
@overload
def gpu(**options: Any) -> Callable[[Callable[P, T]], GpuFunction[P, T]]: ...
def gpu(function: Any = None, /, **options: Any) -> Any:
    """Make a function run on the cluster whenever it is called: ``@gpu`` or ``@gpu(gpus=2, memory="8GiB")``.

    The call waits and returns what the function returns. Inside a GPU cell or a launched function it is an ordinary
    call there. ``f.launch(…)`` returns a future at once, ``f.local(…)`` calls it in this process.

    Parameters
    ----------
    **options
        As for :func:`launch`.

    Returns
    -------
    GpuFunction
        The function as it is called from now on (with options: the decorator that makes it).

    Raises
    ------
    OptionError
        There is no such option, or what is decorated is no function.
    """
    if function is not None and not callable(function):
        raise OptionError(f"@gpu({function!r}): options have names", hint=f"write @gpu(gpus={function!r})")
    options_as_text(options)
    if function is not None:
        return GpuFunction(function, options)
    return functools.partial(make_gpu_function, options=options)


@streams.named
def make_gpu_function(function: Callable[P, T], *, options: Mapping[str, Any]) -> GpuFunction[P, T]:
    """The function that ``@gpu(…)`` makes of the one below it."""
    if not callable(function):
        raise OptionError(f"@gpu(…) stands above a function, not above {function!r}", hint="write it above a def")
    return GpuFunction(function, options)


def _is_in_run() -> bool:
    around = context.current_context()
    return around is not None and around.in_run


_of_script: tuple[int, FunctionExecutor] | None = None


def _launcher() -> FunctionExecutor:
    """The executor of this process; a child that it forked has its own."""
    global _of_script
    around = context.current_context()
    if around is not None and around.in_run:
        raise OptionError(
            "launch() inside of a GPU cell or a launched function: it holds its GPUs already",
            hint="call the function itself, or launch from the notebook or script",
        )
    if around is not None and around.launcher is not None:
        found: FunctionExecutor = around.launcher()
        return found
    if _of_script is None or _of_script[0] != os.getpid():
        from .script import ScriptExecutor

        _of_script = os.getpid(), ScriptExecutor()
    return _of_script[1]


launch.__module__ = gpu.__module__ = __package__.partition(".")[0]  # by which pickles name them
