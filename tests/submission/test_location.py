from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu_release.submission import location
from jupyter_gpu_release.submission.launcher import Launcher, find_launcher, launcher_of
from jupyter_gpu_release.submission.location import Workdir, find_kernel, find_notebook, find_workdir, locate


def plain_shell(raw: str) -> SimpleNamespace:
    history = SimpleNamespace(input_hist_raw=["", raw])
    return SimpleNamespace(user_ns={}, execution_count=7, history_manager=history, compile=None)


def kernel_shell(code: str, **metadata: str) -> SimpleNamespace:
    parent = {"content": {"code": code}, "metadata": metadata}
    return SimpleNamespace(
        user_ns={}, execution_count=3, compile=None, kernel=SimpleNamespace(get_parent=lambda: parent)
    )


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        ("%%gpu_train --gpus 1\nx = 1\n", 1),
        ("\n\n%%gpu_train\nx = 1", 3),
        ("%%time\n%%gpu_train\nx = 1", 2),
        ("\n%%gpu_sweep --trials 2\nx = 1", 2),
        ("\n\n%%gpu_setup\nx = 1", 3),
        ("get_ipython().run_cell_magic('gpu_train', '', 'x = 1')", 1),
    ],
)
def test_lines_above_a_cell(raw: str, offset: int):
    assert locate(plain_shell(raw), "x = 1", is_cell=True).line_offset == offset
    assert locate(kernel_shell(raw), "x = 1", is_cell=True).line_offset == offset


def test_line_of_a_line_magic():
    raw = "a = 1\nb = 2\n%gpu_train fit(a)\n"
    assert locate(plain_shell(raw), "fit(a)", is_cell=False).line_offset == 2


def test_facts_of_a_kernels_cell():
    place = locate(kernel_shell("%%gpu_train\nx", cellId="vscode-notebook-cell:/a#1"), "x", is_cell=True)
    assert (place.cell, place.count) == ("vscode-notebook-cell:/a#1", 3)


def test_the_number_is_that_of_the_cell_that_asks():
    """The shell's own count may be the next one's: a cell that another one has run."""
    shell = kernel_shell("x")
    shell.compile = SimpleNamespace(_filename_map={"cell 5": 5})
    names = {"ask": lambda: locate(shell, "x", is_cell=True).count}
    exec(compile("count = ask()", "cell 5", "exec"), names)
    assert names["count"] == 5


def test_notebook_as_the_clients_tell_it():
    assert find_notebook({}, {"JPY_SESSION_NAME": "/a/b.ipynb"}) == "/a/b.ipynb"
    assert find_notebook({"__vsc_ipynb_file__": "/v.ipynb"}, {"JPY_SESSION_NAME": "/a"}) == "/v.ipynb"
    assert find_notebook({}, {}) == ""


@pytest.mark.parametrize(
    ("names", "session", "program", "shows"),
    [
        ({}, "a.ipynb", "nbclient", True),  # a Jupyter server's kernel
        ({"__vsc_ipynb_file__": "/v.ipynb"}, "a.ipynb", "nbclient", False),
        ({}, "", "papermill", False),
        ({}, "", "terminal", True),
    ],
)
def test_who_shows_what_a_cell_says_after_it_has_returned(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str], session: str, program: str, shows: bool
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", session)
    monkeypatch.setattr(location, "_launcher", lambda: Launcher(program))
    assert location.shows_late_output(SimpleNamespace(user_ns=names, kernel=object())) == shows
    assert location.shows_late_output(SimpleNamespace(user_ns=names))


def test_workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = find_workdir(None)
    assert (found.path, found.asked) == (str(tmp_path), False)
    assert found.stamp == (tmp_path.stat().st_ino, tmp_path.stat().st_mtime_ns)
    (tmp_path / "sub").mkdir()
    assert find_workdir("sub").path == str(tmp_path / "sub")
    missing = find_workdir("/nowhere/at/all")
    assert (missing.path, missing.stamp, missing.asked) == ("/nowhere/at/all", (0, 0), True)


def test_a_folder_that_was_deleted_is_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_workdir(None) == Workdir(deleted=True)
    assert find_workdir("sub") == Workdir(deleted=True)
    assert find_workdir(str(tmp_path)).path == str(tmp_path)


def test_the_kernels_id_is_told_by_the_server_or_by_its_connection_file() -> None:
    config = {"IPKernelApp": {"connection_file": "/run/kernel-0f0f-11.json"}}
    assert find_kernel(config, {"JUPYTER_GPU_KERNEL": "k1"}) == "k1"
    assert find_kernel(config, {}) == "0f0f-11"
    assert find_kernel({"IPKernelApp": {"connection_file": "/tmp/own.json"}}, {}) == ""
    assert find_kernel({}, {}) == ""


@pytest.mark.parametrize(
    ("words", "program", "notebook"),
    [
        ("python /usr/bin/papermill in.ipynb out.ipynb", "papermill", "/w/in.ipynb"),
        ("python -m papermill /a/in.ipynb out.ipynb", "papermill", "/a/in.ipynb"),
        ("python /bin/jupyter execute b.ipynb", "nbclient", "/w/b.ipynb"),
        ("python /bin/jupyter-nbconvert --execute b.ipynb", "nbconvert", "/w/b.ipynb"),
        ("python /bin/jupyter console", "terminal", ""),
        ("python pipeline.py", "nbclient", ""),
    ],
)
def test_the_program_that_runs_a_notebook_is_named(words: str, program: str, notebook: str) -> None:
    assert launcher_of(words.split(), "/w") == Launcher(program, notebook)


def test_a_plain_ipython_is_a_terminal_and_a_process_that_is_gone_says_nothing() -> None:
    assert locate(plain_shell("%%gpu_train\nx"), "x", is_cell=True).program == "terminal"
    assert find_launcher(1 << 30) == Launcher("nbclient")
