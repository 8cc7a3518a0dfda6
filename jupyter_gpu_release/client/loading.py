"""``gpu_release.load(run)``: the results of a run by reference, in a notebook, a GPU cell or a script."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

import msgspec

from ..cell_api import context
from ..cell_api.context import ExecutionContext
from ..errors import (
    ForbiddenError,
    GatewayUnavailableError,
    NoSuchRunError,
    RunFailedError,
    StillTrainingError,
    StoreError,
)
from ..presentation.wording import describe_wait
from ..protocol.cell import Graph
from ..protocol.runs import RunView, ValueInfo
from ..protocol.states import RunState, is_run_id
from ..serialization import codec
from ..serialization.rebuild import NamespaceInfo
from ..store import ownership
from ..store.files import is_shared
from ..store.layout import VALUES_FILE, RunPaths, own_store
from ..store.run_folders import read_manifest
from ..unpickling import Trust
from .discovery import Target, find_gateway
from .home import HomePaths
from .rest import GatewayClient
from .results import Results, open_stored, open_values, say_lacking

#: how a run ended that has little to write is known (and in its manifest) so soon after its GPUs are free; it is
#: looked for so often
_END_TOLD_S, _LOOK_S = 5.0, 0.02
_OUTSIDE = "load it in the notebook or script, and use what comes in the cell or function"
_BY_ID = "name the run's id: %gpu_runs (jupyter gpu runs) lists them"


def execution_context() -> ExecutionContext:
    """The context in which this code runs."""
    return context.current_context() or ExecutionContext(
        realm=lambda: NamespaceInfo(vars(sys.modules["__main__"]), at_home=True), find_target=find_gateway
    )


def load_results(run: str) -> Results:
    """Find the results through the gateway, which knows their digest, else in the store (the package's ``load``)."""
    results = _find(run)
    if results.lacking:
        text = say_lacking(results.run, results.lacking, in_run=execution_context().in_run)
        warnings.warn(text, UserWarning, stacklevel=3)
    return results


def _find(run: str) -> Results:
    if run != "last" and not is_run_id(str(run)):
        raise NoSuchRunError(f"{run!r} is not the id of a run", hint="%gpu_runs (jupyter gpu runs) lists them")
    around = execution_context()
    if around.find_target is None:
        return _from_store(run, Path(around.store()), around)
    try:
        target = around.find_target()
        if target is None:
            raise GatewayUnavailableError(
                "no cluster is running here and no gateway is configured", hint="JUPYTER_GPU_URL names the team's"
            )
        with GatewayClient.for_target(target) as gateway:
            named = gateway.newest().run if run == "last" else run
            view = _known_end(gateway, gateway.view(named, session=around.session()))
    except GatewayUnavailableError as error:
        return _without_gateway(run, around, error)
    return _from_view(view, target, around)


# -------------------------------------------------------------------------------------- by the gateway
def _known_end(gateway: GatewayClient, view: RunView) -> RunView:
    """The end of a run whose results are in its view is known in a moment: how it ended is to be said right."""
    until_s = time.monotonic() + _END_TOLD_S
    while _is_ending(view) and time.monotonic() < until_s:
        sleep(_LOOK_S)
        view = gateway.view(view.run)
    return view


def _is_ending(view: RunView) -> bool:
    if view.state != RunState.PERSISTING.word or view.outcome is None:
        return False
    is_held_up = view.waits_for is not None and bool(view.waits_for.reason)
    return not is_held_up and (view.outcome.values is None or not view.outcome.values.file)


def _from_view(view: RunView, target: Target, around: ExecutionContext) -> Results:
    outcome = view.outcome
    graph = outcome.values if outcome is not None else None
    if not RunState.of(view.state).is_terminal and (graph is None or graph.file):
        raise _unfinished(view.run, view.state, describe_wait(view.waits_for) if view.waits_for is not None else "")
    if outcome is None:
        raise NoSuchRunError(f"run {view.run} belongs to {view.user}, and so do its results")
    if graph is None:
        _refuse_empty(view.run, view.state, view.reason, outcome.results)
        return Results(view.run, view.state, {})
    store = _store_with(view.run, target) if graph.file else Path()
    stream, buffers = open_values(view.run, graph, lambda: store, "the store of the cluster")
    return _rebuilt(view.run, view.state, stream, buffers, outcome.results, around, Trust.GATEWAY)


def _store_with(run: str, target: Target) -> Path:
    """The store, in which the manifest of ``run`` (when it is there already) is that of this run and undamaged."""
    store = store_of(target)
    paths = RunPaths.of(store, run)
    if os.path.lexists(paths.manifest) and read_manifest(paths).get("run") != run:
        raise _not_its_own(paths, run)
    return store


def _not_its_own(paths: RunPaths, run: str) -> StoreError:
    return StoreError(f"{paths.manifest} is not that of run {run}: not loaded", hint="run the cell again")


def store_of(target: Target) -> Path:
    """The store's root as it is seen here. In one that a group shares, files of the cluster's own user are loaded."""
    store = own_store(Path(target.store).expanduser()) if target.store else None
    if store is not None and not _is_groups(store):
        return store
    with GatewayClient.for_target(target) as gateway:
        told = gateway.health()
    ownership.trust(told.service_uid)
    return own_store(Path(told.store)) if store is None else store


def _is_groups(store: Path) -> bool:
    with contextlib.suppress(OSError):
        return is_shared(store / "runs")
    return False


# -------------------------------------------------------------------------------------- by the store alone
def _without_gateway(run: str, around: ExecutionContext, error: GatewayUnavailableError) -> Results:
    named = around.store() or os.environ.get("JUPYTER_GPU_STORE", "")
    own = HomePaths.from_environment().store
    store = own_store(Path(named).expanduser() if named else own)
    if not store.is_dir():
        raise error
    found = _from_store(run, store, around)
    warnings.warn(
        f"{error.message}: run {run} was read by the manifest in the store {store} alone", UserWarning, stacklevel=5
    )
    return found


def _from_store(run: str, store: Path, around: ExecutionContext) -> Results:
    """Values that nobody but this user can have written: results are unpickled, and that runs code."""
    if run == "last":
        raise NoSuchRunError("only the gateway knows which run is the last, and it is not asked here", hint=_BY_ID)
    paths = RunPaths.of(store, run)
    if not os.path.lexists(paths.folder):
        raise NoSuchRunError(f"there is no run {run} in the store {store}")
    _refuse_foreign(paths.folder, stat.S_ISDIR)
    manifest = _last_manifest(paths)
    if manifest.get("run") != run:
        raise _not_its_own(paths, run)
    state, outcome = str(manifest.get("state", "")), manifest.get("outcome") or {}
    if not _is_over(state):
        raise _unfinished(run, state)
    results = [ValueInfo(str(each["name"]), str(each["type"]), each.get("bytes", 0)) for each in _listed(outcome)]
    values = outcome.get("values")
    if not isinstance(values, dict):
        _refuse_empty(run, state, str(manifest.get("reason", "")), results)
        return Results(run, state, {})
    graph = Graph(file=str(values.get("file", VALUES_FILE)), digest=str(values.get("digest", "")))
    path = paths.folder / Path(graph.file).name
    _refuse_foreign(path, stat.S_ISREG)
    if _is_groups(store):
        stream, buffers = _open_shared(run, graph, store, around)
    else:
        stream, buffers = open_stored(run, graph, store, str(store))
    return _rebuilt(run, state, stream, buffers, results, around, Trust.STORE)


def _open_shared(run: str, graph: Graph, store: Path, around: ExecutionContext) -> tuple[bytes, Sequence[Any]]:
    """Values that a gateway has told this process of: whoever may write them may write the manifest, too."""
    if not ownership.is_told(run):
        raise ForbiddenError(
            f"the store {store} is a group's, and no gateway has told what run {run} left there: not loaded (loading "
            "runs code)",
            hint=_OUTSIDE if around.in_run else "load it through the gateway: JUPYTER_GPU_URL, or `jupyter gpu start`",
        )
    told = msgspec.structs.replace(graph, digest=ownership.file_digest(run, graph.digest))
    stream, buffers = open_stored(run, told, store, str(store))
    if not ownership.is_what_was_told(run, stream, buffers):
        raise StoreError(f"{graph.file} is not what run {run} left: it was altered", hint="run the cell again")
    return stream, buffers


def _last_manifest(paths: RunPaths) -> dict[str, Any]:
    """A cell whose results are used at once has ended, whatever the manifest says (or not yet) in that moment."""
    until_s = time.monotonic() + _END_TOLD_S
    while not _tells_of_end(paths) and time.monotonic() < until_s:
        sleep(_LOOK_S)
    return _own_manifest(paths)


def _tells_of_end(paths: RunPaths) -> bool:
    return os.path.lexists(paths.manifest) and _is_over(str(_own_manifest(paths).get("state", "")))


def _own_manifest(paths: RunPaths) -> dict[str, Any]:
    _refuse_foreign(paths.manifest, stat.S_ISREG)
    return read_manifest(paths)


def _is_over(state: str) -> bool:
    try:
        return RunState.of(state).is_terminal
    except KeyError:
        return False


def _listed(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in outcome.get("results", ()) if isinstance(each, dict) and {"name", "type"} <= each.keys()]


def _refuse_foreign(path: Path, is_kind: Any) -> None:
    try:
        facts = path.lstat()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    others = 0o007 if is_shared(path.parent) else 0o077
    if not is_kind(facts.st_mode) or not ownership.is_trusted(facts.st_uid) or facts.st_mode & others:
        raise ForbiddenError(
            f"{path} does not belong to you alone, so it is not loaded (loading runs code)",
            hint="load it through the gateway: JUPYTER_GPU_URL, or `jupyter gpu start`",
        )


# ------------------------------------------------------------------------------------------------- shared
def _rebuilt(
    run: str, state: str, stream: bytes, buffers: Any, facts: list[ValueInfo], around: ExecutionContext, trust: Trust
) -> Results:
    realm = around.realm()
    loaded = codec.load(stream, buffers, realm, trust=trust)
    notes = [f"`{name}` is a placeholder here: {reason}" for name, reason in loaded.missing.items()]
    around.loaded(run, loaded.values)
    return Results(run, state, loaded.values, facts, notes, loaded.lacking(realm.namespace))


def _unfinished(run: str, state: str, waits: str = "") -> StillTrainingError:
    why = f"is not over ({state}): it has no results yet"
    if state == RunState.PERSISTING.word:
        why = f"has ended, and its results are still being written{f': {waits}' if waits else ''}"
    return StillTrainingError(f"run {run} {why}", hint=f"%gpu_attach {run} waits for them")


def _refuse_empty(run: str, state: str, reason: str, results: list[ValueInfo]) -> None:
    if results:
        raise StoreError(f"the results of run {run} are not kept any more", hint="run the cell again")
    if state != RunState.SUCCEEDED.word:
        raise RunFailedError(f"run {run} {state} and left no results{f': {reason}' if reason else ''}")
