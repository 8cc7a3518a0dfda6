"""Slurm's answers, read, and its commands, written."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import ClusterError, OptionError
from jupyter_gpu_release.host.slurm import Slurm, check_pool, job_options
from jupyter_gpu_release.host.slurm_answers import SlurmJob, read_drained, read_gpus, read_id, read_left, read_queue
from jupyter_gpu_release.protocol.config import SlurmPool


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784.0),
        ("7:59:58", 28798.0),
        ("3:04", 184.0),
        ("0:00", 0.0),
        ("UNLIMITED", math.inf),
        ("NOT_SET", math.inf),
        ("INVALID", 0.0),
    ],
)
def test_time_left(text: str, seconds: float) -> None:
    assert read_left(text) == seconds


def test_the_queue_is_read_whatever_a_reason_holds() -> None:
    text = (
        "12|PENDING|8:00:00|2026-11-29T14:20:00||(ReqNodeNotAvail, UnavailableNodes:n[1-2])|x\n"
        "9|RUNNING|7:59:58|2026-11-29T02:18:34|n1|None\n"
        "slurm_load_jobs: something\n"
    )
    waiting = SlurmJob("12", "PENDING", 28800.0, "2026-11-29T14:20:00", "(ReqNodeNotAvail, UnavailableNodes:n[1-2])|x")
    assert read_queue(text) == [SlurmJob("9", "RUNNING", 28798.0, "2026-11-29T02:18:34", "None", "n1"), waiting]
    assert waiting.words.endswith(", expected 14:20 by Slurm")
    assert read_queue("3|PENDING|1:00|N/A||Priority")[0].words == "Slurm job 3, pending (Priority)"


def test_nodes_that_are_drained_or_will_be_are_told_apart() -> None:
    text = "n1|draining|new disk | fan\nn2|mixed|none\nn3|drained*|none\nn3|drained*|none\nn4|down|Not responding\n"
    assert read_drained(text) == {"n1": "new disk | fan", "n3": "none"}


def test_the_id_of_a_job_is_found_among_other_lines() -> None:
    assert read_id("12\n") == read_id("12;cluster\n") == read_id("Welcome!\n12;cluster\nquota: 5 h\n") == "12"
    for text, says in (("", "it said nothing"), ("queued, thank you\n", "queued, thank you")):
        with pytest.raises(ClusterError, match=f"named no job: {says}") as refused:
            read_id(text)
        assert refused.value.hint == "is sbatch a command of your site's own here?"


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)", ["0", "1"]),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:3(IDX:0,2-3)", ["0", "2", "3"]),
        ("     Nodes=n1 CPU_IDs=0 Mem=0 GRES=", []),
    ],
)
def test_the_gpus_of_a_job(line: str, gpus: list[str]) -> None:
    assert read_gpus(line) == gpus


def test_a_job_of_the_pool_in_options_of_sbatch() -> None:
    pool = SlurmPool(
        max_nodes=2, gpus_per_node=4, partition="gpu", account="team", walltime="90m", sbatch=["-C", "a100"]
    )
    assert job_options(pool, "name", Path("/log/%j")) == [
        "--job-name=name",
        "--comment=jupyter_gpu_release pool name",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        "--propagate=NONE",
        "--cpus-per-task=1",
        "--time=90",
        "--output=/log/%j",
        "--partition=gpu",
        "--account=team",
        "--gres=gpu:4",
        "-C",
        "a100",
    ]


@pytest.mark.parametrize(
    "option",
    ["--clusters=b", "--clu=b", "-M", "-Mb", "-N2", "-n4", "--quiet", "-Q", "--wait", "--test-only", "--requeue"],
)
def test_an_option_with_which_jobs_would_be_lost_is_refused(option: str) -> None:
    with pytest.raises(OptionError, match="is set by the pool itself"):
        check_pool(SlurmPool(max_nodes=1, sbatch=[option]), "pool.yml")


def test_other_options_are_the_users() -> None:
    fine = ["-C", "a100", "--nodelist=n1", "--time-min=5", "--ntasks-per-node=1", "--wait-all-nodes=1", "--exclusive"]
    check_pool(SlurmPool(max_nodes=1, sbatch=[*fine, "-w", "n1", "--mem-per-cpu=1G", "--nice=5"]), "pool.yml")


def test_a_job_has_the_users_language_and_nothing_of_the_login_node(tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho 7\n")
    (tmp_path / "sbatch").chmod(0o755)
    here = {"HOSTNAME": "login1", "TMPDIR": "/scratch/login1", "XDG_RUNTIME_DIR": "/run/user/1"}
    slurm = Slurm({"PATH": f"{tmp_path}:/usr/bin:/bin", "LC_ALL": "de_DE.UTF-8", **here})
    assert slurm.submit(SlurmPool(max_nodes=1), "name", "", tmp_path / "log") == "7"
    seen = (tmp_path / "seen").read_text().splitlines()
    assert "LC_ALL=de_DE.UTF-8" in seen
    assert not [line for line in seen if line.partition("=")[0] in here]


def test_what_cannot_be_is_refused() -> None:
    for wrong, says in (
        (SlurmPool(max_nodes=1, min_nodes=2), "min_nodes 2 is above max_nodes 1"),
        (SlurmPool(max_nodes=1, walltime="eight"), "walltime eight: not a duration"),
        (SlurmPool(max_nodes=1, idle_return="soon"), "idle_return soon: not a duration"),
        (SlurmPool(max_nodes=1, sbatch=["--nodes=2"]), "--nodes=2 is set by the pool itself"),
    ):
        with pytest.raises(OptionError, match=says):
            check_pool(wrong, "pool.yml")


@pytest.mark.parametrize(
    ("states", "is_waiting", "is_there"),
    [
        ("PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD", True, False),
        ("RUNNING CONFIGURING SUSPENDED STOPPED SIGNALING RESIZING", False, True),
        ("COMPLETING COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED OUT_OF_MEMORY BOOT_FAIL", False, False),
    ],
)
def test_what_slurms_states_say_of_a_job(states: str, is_waiting: bool, is_there: bool) -> None:
    for state in states.split():
        job = SlurmJob("1", state)
        assert (job.is_waiting, job.is_there) == (is_waiting, is_there), state


def test_a_job_in_words() -> None:
    assert SlurmJob("7", "CONFIGURING", reason="Priority").words == "Slurm job 7, its node starts"
    assert SlurmJob("7", "PENDING", reason="None").words == SlurmJob("7", "PENDING").words == "Slurm job 7, pending"


def test_jobs_are_sorted_by_number_and_parts_of_an_array_with_theirs() -> None:
    text = "".join(f"{job}|PENDING|1:00|N/A||Priority\n" for job in ("100", "20_3", "9", "20_[4-7]"))
    assert [job.job for job in read_queue(text)] == ["9", "20_3", "20_[4-7]", "100"]
