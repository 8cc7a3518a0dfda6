from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.simulation.trace import read_trace, without_too_large

HEAD = "submit_s,duration_s,gpus,user,priority,gpu_type\n"


def written(tmp_path: Path, *rows: str, head: str = HEAD) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(head + "\n".join(rows) + "\n")
    return path


def test_jobs_come_by_age_and_keep_what_is_known_of_them(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "7,60,2,bob,high,v100", "0,30.5,1,,,"))
    assert [(job.index, job.submit_s, job.duration_s, job.gpus) for job in trace.jobs] == [
        (0, 0, 30.5, 1),
        (1, 7, 60, 2),
    ]
    assert (trace.jobs[1].user, trace.jobs[1].priority, trace.jobs[1].gpu_type) == ("bob", "high", "v100")
    assert trace.explain_left_out() == ""


def test_rows_that_cannot_be_used_are_counted_and_named(tmp_path: Path) -> None:
    rows = [
        "0,60,1,a,,",
        "1,,1,a,,",
        "x,60,1,a,,",
        "3,60,0,a,,",
        "4,60,1.5,a,,",
        "5,-1,1,a,,",
        "6,nan,1,a,,",
        "7,60",
        "8,5,1,a,,",
        "9,5,1,a,soon,",
    ]
    trace = read_trace(written(tmp_path, *rows))
    assert [job.submit_s for job in trace.jobs] == [0, 8]
    assert trace.explain_left_out() == (
        "8 rows of trace.csv left out: duration_s is empty (row 3); submit_s is not a number (row 4); "
        "gpus is neither a whole number of at least 1 nor a part such as 0.5 (rows 5, 6); "
        "duration_s is negative (row 7); "
        "duration_s is not finite (row 8); gpus is empty (row 9); "
        "priority is neither low, normal, high nor a number (row 11)"
    )


def test_parts_of_gpus_are_jobs_too(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "0,60,0.5,a,,", "1,60,0.04,a,,", "2,60,2,a,,", "3,60,0.333,a,,"))
    assert [repr(job.gpus) for job in trace.jobs] == ["0.5", "2"]


def test_many_bad_rows_of_a_kind_are_not_all_named(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "0,60,1,a,,", *["1,,1,a,,"] * 20))
    assert trace.explain_left_out().endswith("duration_s is empty (rows 3, 4, 5, 6, 7, 8, 9, 10 and 12 more)")


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "0,60,1,a,,\n").encode()))
    assert len(read_trace(path).jobs) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no column submit_s, duration_s, gpus"),
        (b"submit_s,gpus\n1,2\n", "no column duration_s"),
        (HEAD.encode(), "no row can be used"),
        (HEAD.encode() + b"a,b,c,,,\n", r"no row can be used: submit_s is not a number \(row 2\)"),
        (b"\xff\xfe\x00\x00", "not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=words):
        read_trace(path)


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(HEAD.encode() * 100)[:40]])
def test_a_broken_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=r"trace\.csv\.gz"):
        read_trace(path)


def test_jobs_that_never_fit_are_left_out_and_named(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "0,60,1,a,,", "1,60,64,a,,", "2,60,4,a,,h100"))
    fitting = without_too_large(trace, lambda gpu_type: 2 if gpu_type else 48)
    assert [job.submit_s for job in fitting.jobs] == [0]
    assert fitting.explain_left_out() == (
        "2 rows of trace.csv left out: asks for 64 GPUs, the cluster has 48 (row 3); "
        "asks for 4 GPUs of type h100, the cluster has 2 (row 4)"
    )
