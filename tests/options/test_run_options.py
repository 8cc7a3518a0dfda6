from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.options.definitions import OPTIONS, overlay, parse_settings, split_line
from jupyter_gpu_release.options.run_options import RunOptions, build_options, written_options
from jupyter_gpu_release.protocol import runs
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest

FLAGS = ("restartable", "pin", "fresh", "estimate", "cache", "in_background", "detach", "is_gang")


def read(line: str) -> RunOptions:
    return build_options(split_line(line).written)


def test_nothing_given_is_one_gpu():
    assert read("") == RunOptions(ResourceAsk(gpus=1, ranks=1))


def test_everything_given():
    options = read(
        "--gpus h100:4 --ranks 2 --min-gpu-memory 40GiB --cpus 2.5 --memory 32GiB --label zone=a --label rack=7 "
        "--in a,b --in c --out d --skip e --timeout 2h --wait 0 --on-disconnect cancel --env A=b=c --export HOME,USER "
        "--workdir /data --name 'my run' --fresh --estimate --queue prod --priority high --retries 3 --restartable "
        "--pin --cache --detach"
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
    assert (options.workdir, options.name, options.queue, options.priority) == ("/data", "my run", "prod", "high")
    assert options.retries == 3
    assert all(getattr(options, flag) for flag in FLAGS)


def test_names_to_send_in_addition():
    assert (read("--in +a").send, read("--in +a").send_more) == (None, ("a",))
    assert (read("--in a,+b").send, read("--in a,+b").send_more) == (("a",), ("b",))
    assert read("--in ''").send == ()
    assert read("--in a,b,a").send == ("a", "b")


@pytest.mark.parametrize(
    ("line", "nodes", "any_nodes", "may_spread"),
    [
        ("--gpus 8 --ranks 8 --nodes any", 1, True, False),
        ("--gpus 8 --ranks 8 --nodes 2", 2, False, False),
        ("--gpus 8 --ranks 8 --nodes 1", 1, False, False),
        ("--gpus 8 --ranks 8", 1, False, True),
        ("--gpus 8", 1, False, False),
    ],
)
def test_ranks_over_nodes(line: str, nodes: int, any_nodes: bool, may_spread: bool):
    """Even shares on K of them, whatever room there is, or one unless none is large enough."""
    ask = read(line).ask
    assert (ask.nodes, ask.any_nodes, ask.may_spread) == (nodes, any_nodes, may_spread)


def test_a_part_of_a_gpu():
    assert read("--gpus 0.5").ask.gpus == 0.5
    assert read("--gpus h100:.25 --ranks 1").ask.gpus == 0.25
    assert repr(read("--gpus 1.0").ask.gpus) == "1"
    assert read("--gpus h100:0.05 --gpu-type H100 --retries 100").ask.gpus == 0.05, "the limits themselves"
    assert read("--gpu-memory 20GiB").ask.gpu_memory_bytes == 20 << 30


def test_no_gpu_is_a_cpu_stage():
    assert read("--gpus 0 --ranks 3").ask.ranks == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus 1.5", "write --gpus 2, or a part of one GPU such as --gpus 0.5"),
        ("--gpus 0.04", "the smallest part of a GPU is 0.05"),
        ("--gpus 0.333", "write --gpus 0.33"),
        ("--gpus 0.5 --ranks 2", "a part of a GPU is for one rank"),
        ("--gpus 0.5 --nodes 2", "a part of a GPU is for one rank"),
        ("--gpus 0.5 --keep 5m", "a GPU that is shared is not kept"),
        ("--gpus 0.5 --gpu-memory 20GiB", "both say how much of a GPU"),
        ("--gpus 2 --gpu-memory 20GiB", "both say how much of a GPU"),
        ("--gpu-memory 20GiB --ranks 2", "a part of a GPU is for one rank"),
        ("--gpu-memory 20", "write --gpu-memory 20GiB"),
        ("--gpus -1", "not a number of GPUs"),
        ("--gpus two", "not a number of GPUs"),
        ("--gpus h100", "not a number of GPUs"),
        ("--gpus :2", "type is missing"),
        ("--gpus 3 --ranks 2", "cannot be divided"),
        ("--gpus 1 --ranks 2", "ask for --gpus 2"),
        ("--ranks 0", "not a number of processes"),
        ("--gpus 0 --ranks 4097", "write at most --ranks 4096"),
        ("--gpus 0 --ranks 1000000", "write at most --ranks 4096"),
        (f"--gpus 0 --ranks {'9' * 5000}", "write at most --ranks 4096"),
        ("--gpus 4 --ranks 4 --nodes some", "or --nodes any"),
        ("--gpus 3 --ranks 3 --nodes 2", "or --nodes any"),
        ("--gpus 4 --nodes any", "write --ranks 4 --nodes any"),
        ("--rank-timeout 5m", "write --timeout"),
        ("--gpus 2 --ranks 2 --rank-timeout 0", "must be more than 0"),
        ("--gpus 2 --ranks 1 --rank-timeout 5m", "for several ranks"),
        ("--gpus h100:2 --gpu-type a100", "name two types"),
        ("--gpus 0 --gpu-type a100", "has no GPU"),
        ("--gpus 0 --min-gpu-memory 4GiB", "has no GPU"),
        ("--memory lots", "not a size"),
        ("--memory 10", "--memory 10 is 10 bytes"),
        ("--memory 10", "write --memory 10GiB"),
        ("--memory 1KiB", "--memory 1KiB is 1 KiB"),
        ("--memory 63MiB", "at least 64 MiB"),
        ("--min-gpu-memory 40", "write --min-gpu-memory 40GiB"),
        ("--cpus 0", "not a number of cores"),
        ("--restartable --gpus 2 --ranks 2 --ps 1", "what serves the ranks cannot be saved"),
        ("--retries -1", "not a number of tries"),
        ("--retries 101", "at most 100"),
        ("--timeout 0", "must be more than 0"),
        ("--timeout soon", "not a duration"),
        ("--on-disconnect maybe", "not one of continue, cancel"),
        ("--in a-b", "not a name"),
        ("--out x --skip x", "--out and in --skip"),
        ("--in x --skip x", "--in and in --skip"),
        ("--in +x --skip x", "--in and in --skip"),
        ("--out '' --gather x", "--out does not return it"),
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
    [
        ("", 0, False),
        ("--keep 0", 0, False),
        ("--keep 30s", 30, False),
        ("--keep=2m30s", 150, False),
        ("--keep auto", 300, True),
        ("--keep AUTO", 300, True),
    ],
)
def test_how_long_gpus_are_kept(line: str, seconds: float, auto: bool):
    assert (read(line).keep_s, read(line).keep_auto) == (seconds, auto)


@pytest.mark.parametrize("value", ["soon", "-5s", "30x", "inf", "nan"])
def test_how_long_gpus_cannot_be_kept(value: str):
    with pytest.raises(OptionError, match="not a duration") as refused:
        read(f"--keep {value}")
    assert "--keep auto" in refused.value.hint


def attributes_of(record: object) -> list[str]:
    """The lines `name : type, default` of a docstring in numpy style."""
    section = inspect.getdoc(record).partition("Attributes\n----------\n")[2]
    return [line for line in section.splitlines() if line and not line.startswith(" ")]


def as_documented(name: str, kind: object, default: object) -> str:
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    text = (
        text.replace("typing.Union[int, float]", "int or float")
        .replace("tuple[str, ...]", "tuple of str")
        .replace("dict[str, str]", "dict of str to str")
    )
    if default is None:
        return f"{name} : {text.replace('typing.Optional[', '').removesuffix(' | None').rstrip(']')}, optional"
    return f"{name} : {text}" + ("" if isinstance(default, ResourceAsk) else f", default {default!r}")


@pytest.mark.parametrize("default", [build_options({}), ResourceAsk()], ids=["RunOptions", "ResourceAsk"])
def test_docstrings_list_each_attribute_with_type_and_default(default):
    kinds = get_type_hints(type(default), vars(runs))
    expected = [as_documented(name, kind, getattr(default, name)) for name, kind in kinds.items()]
    assert attributes_of(default) == expected


def test_docstrings_name_each_option():
    text = f"{RunOptions.__doc__} {' '.join('--' + line.split(' : ')[0] for line in attributes_of(ResourceAsk))}"
    hidden = [name for name in OPTIONS if f"--{name}" not in text and f"--{name.replace('-', '_')}" not in text]
    assert hidden == []


def test_a_gang_may_begin_with_fewer_gpus():
    ask = read("--gpus 8 --ranks 4 --min-gpus 2").ask
    assert (ask.min_gpus, ask.nodes, ask.any_nodes) == (2, 1, True)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("--gpus 1", {}),
        ("--gpus 8 --ranks 4 --min-gpus 2 --nodes any", {}),
        ("--gpus 8 --ranks 4 --min-gpus 2", {}),
        ("--gpus 2 --ranks 2 --nodes 2 --ps 1", {}),
        ("--gpus 2 --ranks 2 --ps 1,evaluator", {}),
        ("--gpus 1 --gpu-type h100 --cpus 2.5 --memory 32GiB --min-gpu-memory 40GiB --label 'rack=7 zone=a'", {}),
        (
            "--gpus 2 --ranks 2 --timeout 30s --wait 1s --rank-timeout 500ms --keep auto --name 'my run' --queue prod",
            {},
        ),
        ("--gpus 1 --priority high --retries 3 --on-disconnect cancel --restartable --pin --fresh --detach", {}),
        ("--gpus 1 --cache", {"cache_key": "k"}),
    ],
)
def test_a_requests_options_are_written_as_they_were_read(line: str, more: dict[str, str]):
    options = read(line)
    same = {name: getattr(options, name) for name in RunRequest.__struct_fields__ if hasattr(options, name)}
    request = RunRequest("r", "s", payload=b"", **same, **more)
    again = {name: value.replace(" ", "") for name, value in written_options(request).items()}
    assert again == {name: "".join(values).replace(" ", "") for name, values in split_line(line).written.items()}


@pytest.mark.parametrize(
    ("line", "words", "hint"),
    [
        ("--gpus 8 --ranks 4 --min-gpus 3", "each rank has 2 GPUs", "--min-gpus 4"),
        ("--gpus 4 --ranks 4 --min-gpus 5", "from 1 to 4", "--min-gpus 1"),
        ("--gpus 4 --ranks 4 --min-gpus 0", "from 1 to 4", "--min-gpus 1"),
        ("--gpus 4 --min-gpus 1", "without --ranks", "--ranks 4"),
        ("--gpus 4 --ranks 4 --nodes 2 --min-gpus 2", "wherever there is room", "--nodes any"),
    ],
)
def test_what_cannot_begin_with_fewer_gpus(line: str, words: str, hint: str):
    with pytest.raises(OptionError, match=words) as raised:
        read(line)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("line", "restartable"),
    [("", None), ("--restartable", True), ("--restartable=on", True), ("--restartable=off --ps 1 --ranks 2", False)],
)
def test_a_cell_says_that_it_is_restartable_or_not_or_nothing(line: str, restartable: bool | None) -> None:
    assert build_options(split_line(f"--gpus 2 {line}").written).restartable is restartable


def test_a_cell_takes_back_what_the_notebook_has_set() -> None:
    notebook = parse_settings("restartable=on fresh=off")
    assert build_options(notebook).restartable
    assert not build_options(notebook).fresh
    assert build_options(overlay(notebook, split_line("--restartable=off").written)).restartable is False
    with pytest.raises(OptionError, match="not true or false"):
        build_options(parse_settings("restartable=perhaps"))
