from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.options.definitions import split_line
from jupyter_gpu_release.options.run_options import RunOptions, build_options


def read(line: str) -> RunOptions:
    return build_options(split_line(line).written)


def test_nothing_given_is_one_gpu():
    options = read("")
    assert (options.ask.gpus, options.ask.ranks) == (1, 1)
    assert options.send is None
    assert options.out is None
    assert options.on_disconnect == "continue"


def test_everything_given():
    options = read(
        "--gpus h100:4 --ranks 2 --min-gpu-memory 40GiB --cpus 2.5 --memory 32GiB --label zone=a --label rack=7 "
        "--in a,b --in c --out d --skip e --timeout 2h --wait 0 --on-disconnect cancel --env A=b=c --export HOME,USER "
        "--workdir /data --name 'my run' --fresh --estimate"
    )
    assert options.ask.gpus == 4
    assert options.ask.gpu_type == "h100"
    assert options.ask.min_gpu_memory_bytes == 40 << 30
    assert options.ask.cpus == 2.5
    assert options.ask.memory_bytes == 32 << 30
    assert options.ask.labels == {"zone": "a", "rack": "7"}
    assert options.send == ("a", "b", "c")
    assert (options.out, options.skip) == (("d",), ("e",))
    assert (options.timeout_s, options.wait_s) == (7200.0, 0.0)
    assert options.env == {"A": "b=c"}
    assert options.export == ("HOME", "USER")
    assert (options.workdir, options.name, options.fresh, options.estimate) == ("/data", "my run", True, True)


def test_names_to_send_in_addition():
    assert (read("--in +a").send, read("--in +a").send_more) == (None, ("a",))
    assert (read("--in a,+b").send, read("--in a,+b").send_more) == (("a",), ("b",))
    assert read("--in ''").send == ()


def test_no_gpu_is_a_cpu_stage():
    assert read("--gpus 0 --ranks 3").ask.ranks == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus 0.5", "GPUs are leased whole"),
        ("--gpus .5", "GPUs are leased whole"),
        ("--gpus -1", "not a number of GPUs"),
        ("--gpus two", "not a number of GPUs"),
        ("--gpus h100", "not a number of GPUs"),
        ("--gpus :2", "type is missing"),
        ("--gpus 3 --ranks 2", "cannot be divided"),
        ("--gpus 1 --ranks 2", "ask for --gpus 2"),
        ("--ranks 0", "not a number of processes"),
        ("--rank-timeout 5m", "write --timeout"),
        ("--gpus 2 --ranks 1 --rank-timeout 5m", "for several ranks"),
        ("--gpus h100:2 --gpu-type a100", "name two types"),
        ("--gpus 0 --gpu-type a100", "has no GPU"),
        ("--gpus 0 --min-gpu-memory 4GiB", "has no GPU"),
        ("--memory lots", "not a size"),
        ("--memory 10", "--memory 10 is 10 bytes"),
        ("--memory 10", "write --memory 10GiB"),
        ("--memory 1KiB", "--memory 1KiB is 1.0 KiB"),
        ("--memory 63MiB", "at least 64.0 MiB"),
        ("--min-gpu-memory 40", "write --min-gpu-memory 40GiB"),
        ("--cpus 0", "not a number of cores"),
        ("--timeout 0", "must be more than 0"),
        ("--timeout soon", "not a duration"),
        ("--on-disconnect maybe", "not one of continue, cancel"),
        ("--in a-b", "not a name"),
        ("--out x --skip x", "--out and in --skip"),
        ("--in x --skip x", "--in and in --skip"),
        ("--env A", "not KEY=VALUE"),
        ("--env 1A=2", "not the name of a variable"),
        ("--env A=1 --export A", "--env and in --export"),
        ("--env CUDA_VISIBLE_DEVICES=1", "sets this one itself"),
        ("--label zone", "not KEY=VALUE"),
        ("--workdir ''", "is empty"),
    ],
)
def test_what_cannot_be_is_refused(line: str, words: str):
    with pytest.raises(OptionError) as caught:
        read(line)
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "seconds", "auto"),
    [("", 0, False), ("--keep 0", 0, False), ("--keep 30s", 30, False), ("--keep=2m30s", 150, False),
     ("--keep auto", 300, True), ("--keep AUTO", 300, True)],
)  # fmt: skip
def test_how_long_gpus_are_kept(line: str, seconds: float, auto: bool):
    assert (read(line).keep_s, read(line).keep_auto) == (seconds, auto)


@pytest.mark.parametrize("value", ["soon", "-5s", "30x", "inf", "nan"])
def test_how_long_gpus_cannot_be_kept(value: str):
    with pytest.raises(OptionError, match="not a duration") as refused:
        read(f"--keep {value}")
    assert "--keep auto" in refused.value.hint
