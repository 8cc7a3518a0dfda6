"""Mapped files that are cut short, removed or unmounted under a process that reads them."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import tmpfs
from mapped_reader import RUN, lines, play


def test_a_removed_blob_is_still_there_for_who_has_it_mapped(tmp_path: Path) -> None:
    assert lines(play(tmp_path, "blob.unlink(); print(bytes(view) == b'\\1' * size)")) == ["True"]


READERS = {
    "one byte": "x = view[size - 1]",
    "memcpy": "x = bytes(view)",
    "numpy": "import numpy as np; x = np.frombuffer(view, 'u1').sum(dtype='i8')",
    "numpy writes": "import numpy as np; x = np.frombuffer(view, 'u1'); x += 1",
    "torch's threads": """
        import torch
        torch.set_num_threads(4)
        x = torch.frombuffer(view, dtype=torch.float32).mul(2).sum()""",
    "a thread of Python": """
        thread = threading.Thread(target=bytes, args=(view,))
        thread.start()
        thread.join()""",
}


@pytest.mark.parametrize("how", READERS)
def test_a_truncated_blob_is_an_error_and_the_process_lives(tmp_path: Path, how: str) -> None:
    body = (
        "cut(size // 2 + 5)\ntry:\n" + textwrap.indent(textwrap.dedent(READERS[how]), "    ") + "\n    wait_for_error()"
    )
    body += """
except StoreError as error:
    print(error)
print(view[0] == 1, view[size // 2 + 4] - view[0], view[size // 2 + 5] in (0, 1), view[size - 1] in (0, 1))
view[size - 1] = 7
print(view[size - 1])
"""
    text, hint, state, written = lines(play(tmp_path, body))
    assert f"of run {RUN} (values.graph) cannot be read any more" in text
    assert "is zeros now" in text
    assert f"%gpu_attach {RUN}" in hint
    assert state.startswith(("True 0 True True", "False 0 True True"))  # numpy wrote to its own copy
    assert written == "7"


def test_threads_that_strike_at_once_are_told_once(tmp_path: Path) -> None:
    body = """
    import _thread
    import numpy as np
    from jupyter_gpu_release.store.mapped import sigbus as guard
    array, told, errors = np.frombuffer(view, "u1"), [], 0
    handler, together = guard._guard, threading.Barrier(3, timeout=30)
    lost, note = handler._lost_bytes, handler._alarm.note_lost_file
    struck = set()
    def at_once(*args):
        is_first = threading.get_ident() not in struck
        struck.add(threading.get_ident())
        if is_first:  # who goes on before the zeros are there strikes again, alone
            together.wait()
        found = lost(*args)
        if is_first:
            together.wait()
        return found
    handler._lost_bytes = at_once
    handler._alarm.note_lost_file = lambda *args: (told.append(args), note(*args))
    cut(size // 2)
    go, half = threading.Event(), array[size // 2 :]
    threads = [threading.Thread(target=lambda: (go.wait(), half.sum())) for _ in range(3)]
    for thread in threads:
        thread.start()
    while True:
        try:
            go.set()
            while handler._alarm._is_running or any(thread.is_alive() for thread in threads):
                time.sleep(0.005)
            break
        except StoreError:
            errors += 1
    _thread.interrupt_main(signal.SIGBUS)  # one that comes late has nothing to tell
    print(len(told), errors)
    """
    assert lines(play(tmp_path, body)) == ["1 1"]


def test_comparing_with_a_file_that_was_cut_short(tmp_path: Path) -> None:
    body = """
    from jupyter_gpu_release.store.mapped.mapping import mapping_at
    mapping, _ = mapping_at(view)
    ones = memoryview(bytes([1]) * (1 << 20))
    print(mapping.equals(mapping.address, ones), mapping.equals(mapping.address + size // 2, ones))
    cut(1 << 20)
    print(mapping.equals(mapping.address, ones), mapping.equals(mapping.address + size // 2, ones))
    """
    assert lines(play(tmp_path, body)) == ["True True", "True False"]


def test_torn_memory_is_not_sent(tmp_path: Path) -> None:
    body = """
    from jupyter_gpu_release.store.mapped.mapping import refuse_torn
    refuse_torn([view, memoryview(b"other")])
    cut(size // 2)
    try:
        bytes(view)
        wait_for_error()
    except StoreError:
        pass
    for part in (view, view[5:500]):
        try:
            refuse_torn([memoryview(b"other"), part])
            print("taken")
        except StoreError as error:
            print(str(blob) in error.message, "are zeros now" in error.message)
    """
    assert lines(play(tmp_path, body)) == ["True True"] * 2


def test_torn_memory_is_never_taken_for_the_blob(tmp_path: Path) -> None:
    body = """
    cut(size // 2)
    try:
        bytes(view)
        wait_for_error()
    except StoreError:
        pass
    again = create_run_folder(store, sys.argv[3][:-1] + "e").values
    written = write_graph(again, b"t", [view])
    blob.unlink()
    print(blobs_of(again)[0][0] == blob.name)
    content = bytes(open_graph(again, written, verify=True).buffers[0])
    print(content == b"\\1" * (size // 2) + bytes(size // 2))
    """
    assert lines(play(tmp_path, body)) == ["False", "True"]


def test_a_second_blob_of_the_same_process_is_noticed_too(tmp_path: Path) -> None:
    body = """
    other = write_graph(path.with_name("inputs.graph"), b"s", [b"\\2" * size])
    second = open_graph(path.with_name("inputs.graph"), other).buffers[0]
    for what, name in ((view, path), (second, path.with_name("inputs.graph"))):
        target = BlobStore(store / "blobs").path_of(blobs_of(name)[0][0])
        target.chmod(0o600)
        os.truncate(target, 4096)
        try:
            what[size - 1]
            wait_for_error()
        except StoreError as error:
            print(name.name in str(error))
    """
    assert lines(play(tmp_path, body)) == ["True", "True"]


def test_between_the_cells_of_a_kernel_it_is_said_not_raised(tmp_path: Path) -> None:
    body = """
    import types
    sys.modules["ipykernel.kernelapp"] = types.ModuleType("ipykernel.kernelapp")
    cut(4096)
    view[size - 1]
    time.sleep(0)
    end = time.monotonic() + 30
    guarded = __import__("jupyter_gpu_release.store.mapped.sigbus", fromlist=["x"])._guard
    while guarded._alarm._lost and time.monotonic() < end:
        time.sleep(0.01)
    print("lives")
    """
    done = play(tmp_path, body)
    assert lines(done) == ["lives"]
    assert f"StoreError: {tmp_path}" in done.stderr


def test_a_mapping_made_in_a_thread_is_guarded_too(tmp_path: Path) -> None:
    body = """
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    found = []
    thread = threading.Thread(target=lambda: found.append(open_graph(path, digest).buffers[0]))
    thread.start(); thread.join()
    cut(4096)
    print(found[0][size - 1])
    """
    assert lines(play(tmp_path, body)) == ["0"]


# ----------------------------------------------------------------- what is not ours dies as before
ELSEWHERE = """
import mmap
file = open(store / "mine", "w+b")
file.truncate(1 << 20)
mine = mmap.mmap(file.fileno(), 1 << 20)
file.truncate(0)
print(mine[5])
"""


def test_other_faults_end_the_process_with_faulthandlers_words(tmp_path: Path) -> None:
    done = play(tmp_path, ELSEWHERE)
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr


def test_a_signal_from_outside_ends_it_too(tmp_path: Path) -> None:
    done = play(tmp_path, "os.kill(os.getpid(), signal.SIGBUS); time.sleep(30)")
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr


def test_a_handler_that_was_set_later_is_kept_behind_ours(tmp_path: Path) -> None:
    body = """
    faulthandler.disable(); faulthandler.enable()
    second = open_graph(path, digest).buffers[0]
    cut(4096)
    try:
        second[size - 1]
        wait_for_error()
    except StoreError as error:
        print("StoreError")
    """
    assert lines(play(tmp_path, body)) == ["StoreError"]


# ------------------------------------------------------------------------ filesystems that go away
@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "mounted"
    folder.mkdir()
    with tmpfs(folder, "200m"):
        yield folder


def test_a_filesystem_that_is_unmounted_stays_for_who_has_it_mapped(mounted: Path) -> None:
    body = """
    import subprocess
    subprocess.run(["umount", "-l", str(store)], check=True)
    print(blob.exists(), bytes(view) == b"\\1" * size)
    try:
        open_graph(path, digest)
    except StoreError as error:
        print(error)
    """
    state, text, hint = lines(play(mounted, body))
    assert state == "False True"
    assert str(mounted) in text
    assert "mounted" in hint


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A mounted filesystem and the image that it lies in: cut that short, and reading fails."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    with image.open("wb") as file:
        file.truncate(96 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", str(image)], check=False, capture_output=True).returncode == 0
    if not made or subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=False).returncode:
        pytest.skip("no loop devices here")
    yield folder, image
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def test_a_disk_that_fails_is_an_error_and_what_is_in_memory_stays(failing_disk: tuple[Path, Path]) -> None:
    folder, image = failing_disk
    body = f"""
    view[5] = 9
    with open(blob, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.truncate({str(image)!r}, 1 << 20)
    drop = os.open({str(image)!r}, os.O_RDONLY)
    os.posix_fadvise(drop, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        bytes(view[1 << 20:])
        wait_for_error()
    except StoreError as error:
        print(error.message.startswith(str(store)))
    print(view[5], view[size - 1])
    """
    text, state = lines(play(folder, body))
    assert text == "True"
    assert state == "9 0"
