"""All that a cell says reaches its request: every option, all that was collected, where it stands."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.errors import OptionError, StoreError
from jupyter_gpu_release.options.definitions import OPTIONS, split_line
from jupyter_gpu_release.options.run_options import build_options, written_options
from jupyter_gpu_release.protocol.cell import INLINE_LIMIT_BYTES, CellPayload, Graph, SetupCell
from jupyter_gpu_release.protocol.lineage import UsedInput
from jupyter_gpu_release.protocol.session import PROTOCOL, Welcome
from jupyter_gpu_release.protocol.wire import decode
from jupyter_gpu_release.store.files import Pace
from jupyter_gpu_release.submission.capture import CapturedInputs
from jupyter_gpu_release.submission.location import CellLocation
from jupyter_gpu_release.submission.request import Cell, Submission, find_store, make_submission

#: options that say what is sent and returned, or what this kernel does (the environment is chosen here): the gateway
#: does not see them
_OF_THE_CELL = {"in", "out", "skip", "gather", "env", "export", "workdir", "estimate", "async", "cache"}
_OF_THE_CELL |= {"environment", "pip"}
_LINES = [
    "--gpu-memory 20GiB",
    "--gpus 0.5",
    "--gpus 4 --gpu-type h100 --min-gpu-memory 40GiB --ranks 2 --min-gpus 2 --nodes any --rank-timeout 40s",
    "--gpus 4 --ranks 4 --nodes 2 --ps 2,evaluator --cpus 2.5 --label zone=a --queue prod --priority high",
    "--gpus 1 --wait 7s --on-disconnect cancel --restartable --retries 3 --name fit --fresh --keep 30s --detach",
    "--gpus 1 --keep auto --timeout 2h --pin --memory 3GiB",
]


def _submit(line: str = "", prepared: CapturedInputs | None = None, **cell: Any) -> Submission:
    options = build_options(split_line(line).written)
    place = CellLocation("book.ipynb", "cell-1", "kernel-1", 7, 3, "message", "papermill")
    return make_submission(Cell("x = 1", options, place, **cell), prepared or CapturedInputs(), "session", Path)


def _payload(submission: Submission) -> CellPayload:
    return decode(submission.request.payload, CellPayload)


def test_a_cell_that_may_install_packages_says_so() -> None:
    options, place = build_options({}), CellLocation("book.ipynb")
    setup = CapturedInputs(setup=[SetupCell("get_ipython().run_line_magic('pip', 'install einops')")])
    for body, prepared, installs in [
        ("x = 1", CapturedInputs(), False),
        ("%pip install einops", CapturedInputs(), True),
        ("x = 1", setup, True),
    ]:
        made = make_submission(Cell(body, options, place), prepared, "session", Path)
        assert _payload(made).installs is installs


@pytest.mark.parametrize("line", _LINES)
def test_the_request_has_the_options_of_the_line(line: str) -> None:
    written = {name: " ".join(values) for name, values in split_line(line).written.items()}
    shown = written_options(_submit(line).request)
    assert {name: value.replace(" ", "") for name, value in shown.items()} == written


def test_no_option_is_left_out() -> None:
    assert {name for line in _LINES for name in split_line(line).written} == OPTIONS.keys() - _OF_THE_CELL


def test_the_payload_has_what_the_line_says_of_the_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELS", "1")
    prepared = CapturedInputs(env={"A": "notebook", "B": "notebook"}, unset=["A", "C"])
    line = f"--gpus 2 --ranks 2 --gather g --env A=line --export KERNELS --workdir {tmp_path}"
    payload = _payload(_submit(line, prepared))
    assert payload.env == {"A": "line", "B": "notebook", "KERNELS": "1"}
    assert (payload.unset, payload.gather) == (["C"], ["g"])
    assert (payload.workdir, payload.workdir_asked) == (str(tmp_path), True)


def test_what_was_collected_goes_along() -> None:
    """Each field of it that the request or the payload has, too."""
    prepared = CapturedInputs(
        plain_loops=[4],
        out=["o"],
        skip=["s"],
        reevaluate={"device": "pick()"},
        ambient=b"ambient",
        modules={"near.py": b"text"},
        sys_path=["/more"],
        imports=["torch"],
        packages=["numpy"],
        used=[UsedInput("u", "int")],
        prepare=["pandas"],
        env={"K": "v"},
        unset=["gone"],
        setup=[SetupCell("import x")],
        setup_inputs=Graph(stream=b"setup"),
        unsent={"a": 1, "b": 2, "c": 3},
        held_bytes={"b": 10},
        held={"b": 2},
        stream=b"inputs",
    )
    submission = _submit("", prepared)
    payload, request = _payload(submission), submission.request
    for place in (payload, request):
        shared = {each.name for each in fields(CapturedInputs)} & set(place.__struct_fields__)
        for name in shared - {"unsent", "held"}:
            assert getattr(place, name) == getattr(prepared, name), name
    assert (payload.unsent, payload.held, payload.inputs.stream) == (["a", "c"], {"b": 10}, b"inputs")


def test_the_request_says_where_the_cell_stands() -> None:
    submission = _submit("--name own", in_terminal=True)
    request, payload = submission.request, _payload(submission)
    assert (request.session, request.notebook, request.cell) == ("session", "book.ipynb", "cell-1")
    assert (request.kernel, request.number, request.program) == ("kernel-1", 7, "papermill")
    assert (request.code, request.name, payload.function) == ("x = 1", "own", "")
    assert (payload.source, payload.count, payload.line_offset, payload.terminal) == ("x = 1", 7, 3, True)


def test_a_function_is_called_by_its_name_and_restarted_only_where_it_says_so() -> None:
    request = _submit("", function="fit", text="def fit(): ...").request
    assert (request.name, request.code, request.restartable) == ("fit", "def fit(): ...", False)
    assert _submit("--restartable", function="fit").request.restartable is True
    assert _submit("").request.restartable is None  # as the queue says


def test_the_token_for_the_gateway_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "secret")
    with pytest.raises(OptionError, match="does not get your token"):
        _submit("--export JUPYTER_GPU_TOKEN")
    with pytest.raises(OptionError, match="no such environment variable"):
        _submit("--export NOT_SET_ANYWHERE")


class _Interrupted(Pace):
    def wrote(self, count: int) -> None:
        raise KeyboardInterrupt


def test_only_large_inputs_are_written_and_nothing_is_left_of_a_run_that_did_not_happen(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "runs").mkdir(parents=True, mode=0o700)
    cell = Cell("x", build_options({}), CellLocation())
    large = CapturedInputs(stream=b"s", total_bytes=INLINE_LIMIT_BYTES + 1)
    with pytest.raises(KeyboardInterrupt):
        make_submission(cell, large, "session", lambda: store, pace=_Interrupted())
    assert not list((store / "runs").iterdir())
    for total, is_written in ((INLINE_LIMIT_BYTES, False), (INLINE_LIMIT_BYTES + 1, True)):
        prepared = CapturedInputs(stream=b"s", total_bytes=total)
        submission = make_submission(cell, prepared, "session", lambda: store)
        assert (submission.paths is not None, submission.has_inputs) == (is_written, True)
    again = submission.again()
    assert again.paths is not None
    assert submission.paths is not None
    assert again.request.run != submission.request.run
    assert again.paths.inputs.read_bytes() == submission.paths.inputs.read_bytes()
    submission.withdraw()
    assert not submission.has_inputs
    with pytest.raises(StoreError, match="cannot be copied"):
        submission.again()
    assert [path.name for path in (store / "runs").iterdir()] == [again.request.run]


def test_the_store_that_the_kernel_names_is_the_clusters(tmp_path: Path) -> None:
    own, other, nowhere = tmp_path / "own", tmp_path / "other", tmp_path / "nowhere"
    for folder in (own, other):
        folder.mkdir()
    (tmp_path / "link").symlink_to(own)

    def find(named: Path | str, of_gateway: Path, *, configured: bool) -> Path:
        welcome = Welcome(PROTOCOL, "0", "ann", simulated=True, gpus_total=1, store=str(of_gateway))
        return find_store(str(named), welcome, configured=configured)

    assert find(own, own, configured=False) == own
    assert find("", own, configured=False) == own
    assert find(tmp_path / "link", own, configured=False) == tmp_path / "link"
    assert find(own, other, configured=True) == own  # elsewhere it has another path
    assert find_store(str(own), None, configured=True) == own  # the gateway has not said anything yet
    with pytest.raises(StoreError, match="but the store of this cluster is"):
        find(own, other, configured=False)
    with pytest.raises(StoreError, match=r"names .*nowhere, which is no folder here"):
        find(nowhere, own, configured=True)
    with pytest.raises(StoreError, match="cannot be seen from this kernel"):
        find("", nowhere, configured=True)
