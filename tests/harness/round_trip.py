"""A notebook and its ranks without a cluster: a real IPython shell here, forks of a clean process as ranks.

``python round_trip.py`` is the clean process: it reads jobs from stdin, forks for each, and answers on stdout.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import struct
import subprocess
import sys
import time
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from optional_libraries import skip_without
from stream_names import paths_of_ours
from traitlets.config import Config

from jupyter_gpu_release.node.preload import DEFAULT
from jupyter_gpu_release.protocol.cell import CellPayload, Graph
from jupyter_gpu_release.protocol.runs import Outcome, ValueInfo
from jupyter_gpu_release.protocol.wire import decode, encode
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.graph_file import open_graph, write_graph

if TYPE_CHECKING:
    from tests.cells.table import Cell


def make_shell() -> InteractiveShell:
    """A shell of its own, with an input history in memory only."""
    HistoryManager.enabled = False
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.cache_size = 1000
    shell = InteractiveShell(config=config, user_module=types.ModuleType("__main__"))
    shell.user_ns["In"] = shell.user_ns["_ih"] = shell.history_manager.input_hist_parsed
    atexit.unregister(shell.atexit_operations)  # a collection of all garbage for each, a minute at the session's end
    return shell


# ------------------------------------------------------------------------------- the notebook's side
@dataclass
class Trip:
    """What one GPU cell did."""

    output: str
    error: str
    notes: list[str]
    results: dict[str, ValueInfo]
    prepared: Any
    load_ms: float = 0.0
    collect_ms: float = 0.0
    apply_ms: float = 0.0
    untouched: str = ""
    bound: list[ValueInfo] = field(default_factory=list)
    home_bytes: int = 0
    #: stream and buffers of what came home
    graph: Any = None


class Notebook:
    """``cell`` runs code here, ``gpu`` in a rank."""

    def __init__(self, ranks: RankServer, folder: Path) -> None:
        from jupyter_gpu_release.kernel.namespace.namespace import Namespace

        self._ranks = ranks
        self._folder = folder
        self._count = 0
        self.shell = make_shell()
        self.names = Namespace(self.shell)

    @property
    def ns(self) -> dict[str, Any]:
        return self.shell.user_ns

    def cell(self, source: str) -> Any:
        """Run an ordinary cell; an error in it is raised here."""
        skip_without(source)
        with self._as_main():
            result = self.shell.run_cell(source, store_history=True)
        if result.error_in_exec or result.error_before_exec:
            raise result.error_in_exec or result.error_before_exec
        return result.result

    def collect(self, body: str, **choice: Any) -> Any:
        from jupyter_gpu_release.submission.selection import NameChoice

        with self._as_main():
            return self.names.collect(body, NameChoice(**choice))

    def gpu(
        self,
        body: str,
        *,
        has_gpu: bool = False,
        through_files: bool = False,
        hardware: str = "",
        meanwhile: str = "",
        **choice: Any,
    ) -> Trip:
        """One GPU cell, there and back. ``hardware``: code run in the rank first, to make it look as if it had some;
        ``meanwhile``: a cell that runs here while it is under way (``--async``).
        """
        from jupyter_gpu_release.kernel.namespace.meanwhile import InputsMeanwhile

        skip_without(body)
        prepared = self.collect(body, **choice)
        looks = InputsMeanwhile(prepared, self.names.realm) if meanwhile else None
        inputs = self._graph(prepared.stream, prepared.buffers, through_files)
        payload = CellPayload(
            source=body,
            inputs=inputs,
            out=prepared.out,
            skip=prepared.skip,
            reevaluate=prepared.reevaluate,
            unsent=sorted(prepared.unsent),
            sys_path=prepared.sys_path,
            modules=prepared.modules,
            ambient=prepared.ambient,
            workdir=os.getcwd(),
        )
        answer = self._ranks.run(
            payload, has_gpu=has_gpu, folder=self._folder, through_files=through_files, hardware=hardware
        )
        if meanwhile:
            self.cell(meanwhile)
        began = time.perf_counter()
        trip = Trip(
            output=answer["output"],
            error=answer["error"],
            notes=[*answer["notes"]],
            results={info.name: info for info in answer["results"]},
            prepared=prepared,
            load_ms=answer["load_ms"],
            collect_ms=answer["collect_ms"],
            untouched=answer["untouched"],
            home_bytes=answer["home_bytes"],
        )
        if answer["graph"] is not None:
            stream, buffers = trip.graph = self._open(answer["graph"])
            outcome = Outcome(status="ok", results=answer["results"])
            with self._as_main():
                beside = {"run": "RUN", "in_turn": False, "meanwhile": looks} if looks else {}
                trip.bound = self.names.apply(stream, buffers, outcome, prepared, **beside)
            trip.notes += self.names.notes
            self.names.values_of_last = {}
            assert (paths_of_ours(bytes(stream)), "came home") == (set(), "came home")
        assert (paths_of_ours(prepared.stream + prepared.ambient), "were sent") == (set(), "were sent")
        trip.apply_ms = (time.perf_counter() - began) * 1000
        self._add_to_history(body)
        return trip

    def ok(self, body: str, **options: Any) -> Trip:
        """As ``gpu``, for a cell that must succeed."""
        trip = self.gpu(body, **options)
        assert not trip.error, trip.error
        return trip

    def expect_as_plain(self, cell: Cell, *, is_gpu_setup: bool = False) -> None:
        """The answer to what ``cell`` asks is the same after a GPU cell as after a plain one."""
        skip_without(cell.setup)
        expected = _asked_after_plain(cell)
        (self.ok if is_gpu_setup else self.cell)(cell.setup)
        self.ok(cell.body)
        try:
            assert repr(self.cell(cell.asked)) == expected
        finally:
            self.cell(cell.end)

    @contextlib.contextmanager
    def _as_main(self) -> Any:
        """As in a kernel, the notebook's module is the main one."""
        before = sys.modules["__main__"]
        sys.modules["__main__"] = self.shell.user_module
        try:
            yield
        finally:
            sys.modules["__main__"] = before

    def _add_to_history(self, body: str) -> None:
        self.shell.user_ns["_ih"].append(f"get_ipython().run_cell_magic('gpu_train', '', {body!r})\n")
        self.shell.execution_count += 1

    def _graph(self, stream: bytes, buffers: Any, through_files: bool) -> Graph:
        if not through_files:
            return Graph(stream=stream, buffers=[bytes(buffer) for buffer in buffers])
        self._count += 1
        path = self._folder / f"inputs-{self._count}.graph"
        return Graph(file=str(path), digest=write_graph(path, stream, buffers, durable=False, blobs=_blobs_at(path)))

    def _open(self, graph: Graph) -> tuple[bytes, Any]:
        if graph.file:
            path = Path(graph.file)
            return tuple(open_graph(path, graph.digest, blobs=_blobs_at(path)))  # type: ignore[return-value]
        return graph.stream, graph.buffers


def _asked_after_plain(cell: Cell) -> str:
    """The answer after a plain cell, among the names of a main module of its own."""
    before, module = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        for source in (cell.setup, cell.body):
            exec(compile(source, "<plain cell>", "exec", dont_inherit=True), vars(module))
        expected = repr(eval(cell.asked, vars(module)))
        exec(cell.end, vars(module))
    finally:
        sys.modules["__main__"] = before
    return expected


def _blobs_at(path: Path) -> BlobStore:
    return BlobStore(path.parent / "blobs")


#: a node learns such from its users' cells
_LEARNED = ("sklearn.linear_model", "jax", "networkx", "sympy")


class RankServer:
    """The clean process."""

    def __init__(self, preload: tuple[str, ...] = (*DEFAULT, *_LEARNED)) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *preload], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def run(self, payload: CellPayload, **options: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        _send(self._process.stdin, (encode(payload), options))
        answer: dict[str, Any] = _receive(self._process.stdout)
        if "died" in answer:
            raise AssertionError(f"the rank died: {answer['died']}")
        answer["results"] = decode(answer["results"], list[ValueInfo])
        answer["graph"] = decode(answer["graph"], Graph) if answer["graph"] else None
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def _send(pipe: Any, thing: Any) -> None:
    data = pickle.dumps(thing)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))


# ------------------------------------------------------------------------------------ the rank's side
def _serve() -> None:
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from jupyter_gpu_release.node.preload import import_libraries

    assert not import_libraries(sys.argv[1:])
    from jupyter_gpu_release.node.values.namespace import RankValues

    shell = make_shell()
    shell.run_cell("None", store_history=False)
    warm = RankValues({"__builtins__": __builtins__}, CellPayload(source=""), b"", [], has_gpu=False)
    warm.load()
    warm.collect()
    while True:
        try:
            raw, options = _receive(jobs)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            try:
                answer = _run(decode(raw, CellPayload), shell, **options)
            except BaseException as error:
                import traceback

                answer = {"died": f"{error!r}\n{traceback.format_exc()}"}
            _send(answers, answer)
            os._exit(0)
        os.waitpid(pid, 0)


def _run(
    payload: CellPayload, shell: Any, *, has_gpu: bool, folder: Path, through_files: bool, hardware: str
) -> dict[str, Any]:
    from jupyter_gpu_release.errors import GpuReleaseError
    from jupyter_gpu_release.node.values.namespace import RankValues

    sys.modules["__main__"] = shell.user_module
    exec(hardware, {})
    os.chdir(payload.workdir)
    if payload.modules:  # as for a node that does not see the notebook's folder
        os.chdir(folder)
        code = folder / f"code-{os.getpid()}"
        for name, source in payload.modules.items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_bytes(source)
        sys.path.insert(0, str(code))
    stream, buffers = payload.inputs.stream, list(payload.inputs.buffers)
    if payload.inputs.file:
        path = Path(payload.inputs.file)
        stream, buffers = open_graph(path, payload.inputs.digest, blobs=_blobs_at(path))
    answer: dict[str, Any] = {"output": "", "error": "", "notes": [], "results": encode([]), "graph": b""}
    answer |= {"collect_ms": 0.0, "untouched": "", "home_bytes": 0}
    began = time.perf_counter()
    values = RankValues(shell.user_ns, payload, stream, buffers, has_gpu=has_gpu)
    out = io.StringIO()
    try:
        with contextlib.redirect_stderr(out):
            answer["notes"] += values.load()
    except GpuReleaseError as error:
        return {**answer, "error": f"{type(error).__name__}: {error}", "load_ms": 0.0}
    answer["load_ms"] = (time.perf_counter() - began) * 1000
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        result = shell.run_cell(payload.source, store_history=False)
    problem = result.error_in_exec or result.error_before_exec
    answer["error"] = f"{type(problem).__name__}: {problem}" if problem else ""
    values.shown = () if result.result is None else (result.result,)
    answer["untouched"] = values.untouched_reason()
    began = time.perf_counter()
    with contextlib.redirect_stderr(out):
        collected = values.collect()
    answer["output"] = out.getvalue()
    answer["collect_ms"] = (time.perf_counter() - began) * 1000
    answer["home_bytes"] = collected.total_bytes
    answer["notes"] += collected.notes
    answer["results"] = encode(collected.results)
    graph = Graph(stream=collected.stream, buffers=[bytes(buffer) for buffer in collected.buffers])
    if through_files:
        path = folder / f"values-{os.getpid()}.graph"
        digest = write_graph(path, collected.stream, collected.buffers, durable=False, blobs=_blobs_at(path))
        graph = Graph(file=str(path), digest=digest)
    return {**answer, "graph": encode(graph)}


if __name__ == "__main__":
    _serve()
