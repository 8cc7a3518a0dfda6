"""Checked RunOptions, incl. how GPUs are shared out over ranks and nodes; a request's options as they are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import OptionError
from ..settings.built_in import BUILT_IN
from ..units import format_bytes, format_seconds, parse_bytes, parse_seconds, round_number
from .definitions import OPTIONS, Written, is_on

if TYPE_CHECKING:
    from ..protocol.runs import ResourceAsk, RunRequest

_EVALUATOR = "evaluator"
#: of a number of ranks or nodes
_MOST_DIGITS = 6
#: of ``--nodes``
ANY_NODES = "any"


@dataclass(frozen=True)
class GangShape:
    """Processes of a run: ranks share the GPUs evenly and are spread over the nodes.

    Attributes
    ----------
    ranks : int
        At least 1, a divisor of the GPUs.
    nodes : int
        At least 1, a divisor of ``ranks``: as many on each.
    any_nodes : bool
        As many on each node as it has room for; ``nodes`` is 1 then.
    may_spread : bool
        The same where no one node is large enough.
    ps : int
        Parameter servers, without a GPU.
    evaluator : bool
        One more process without a GPU, which evaluates.
    """

    ranks: int = 1
    nodes: int = 1
    any_nodes: bool = False
    may_spread: bool = False
    ps: int = 0
    evaluator: bool = False


def gang_shape(gpus: int, ranks: str | None, nodes: str | None, ps: str | None) -> GangShape:
    """Read the three options as written (None: not given).

    Parameters
    ----------
    gpus
        GPUs of all ranks together.

    Raises
    ------
    OptionError
        Something cannot be divided, or there are parameter servers and no ranks.
    """
    count, (servers, evaluator) = _count("ranks", ranks or "1"), _servers(ps)
    spread = (nodes or "").lower() == ANY_NODES
    shape = GangShape(
        count,
        1 if spread else _count("nodes", nodes or "1"),
        spread and count > 1,
        nodes is None and count > 1,
        servers,
        evaluator,
    )
    _check_ranks(gpus, shape.ranks)
    if spread and count == 1:
        hint = f"write --ranks {max(gpus, 2)} --nodes any, or leave --nodes out"
        raise OptionError("--nodes any without --ranks: one process runs on one node", hint=hint)
    if shape.nodes > 1:
        _check_nodes(gpus, shape)
    if (shape.ps or shape.evaluator) and ranks is None:
        raise OptionError(
            f"--ps {ps} without --ranks: parameter servers serve ranks",
            hint=f"write --gpus {max(gpus, 2)} --ranks {max(gpus, 2)} --ps {ps}",
        )
    return shape


def _count(name: str, text: str) -> int:
    from ..protocol.bounds import MOST_RANKS

    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        what = "processes" if name == "ranks" else "nodes"
        either = ", or --nodes any" if name == "nodes" else ""
        raise OptionError(f"--{name} {text}: not a number of {what}", hint=f"write --{name} 2{either}")
    if len(text) > _MOST_DIGITS or int(text) > MOST_RANKS:
        raise OptionError(f"--{name} {text}: too many", hint=f"write at most --{name} {MOST_RANKS}")
    return int(text)


def _servers(text: str | None) -> tuple[int, bool]:
    number, comma, word = (text or "0").replace(" ", "").partition(",")
    if not re.fullmatch(r"[0-9]{1,4}", number) or (comma and word != _EVALUATOR):
        raise OptionError(f"--ps {text}: not a number of parameter servers", hint="write --ps 2 or --ps 2,evaluator")
    return int(number), bool(comma)


def _check_ranks(gpus: int, ranks: int) -> None:
    if gpus and ranks > gpus:
        raise OptionError(
            f"--ranks {ranks} with --gpus {gpus}: each rank has a GPU of its own",
            hint=f"ask for --gpus {ranks}, or for --ranks {gpus}",
        )
    if gpus % ranks:
        raise OptionError(
            f"--gpus {gpus} cannot be divided among --ranks {ranks}",
            hint=f"ask for --gpus {ranks * max(1, round_number(gpus / ranks))} or other ranks",
        )


def _check_nodes(gpus: int, shape: GangShape) -> None:
    nodes, ranks = shape.nodes, shape.ranks
    if ranks == 1:
        raise OptionError(
            f"--nodes {nodes} without --ranks: one process runs on one node",
            hint=f"write --ranks {max(gpus, nodes)} --nodes {nodes}",
        )
    if ranks % nodes:
        raise OptionError(
            f"--ranks {ranks} cannot be spread evenly over --nodes {nodes}",
            hint=f"ask for --ranks {nodes * max(1, round_number(ranks / nodes))}, or --nodes any",
        )


_LEAST_BYTES: int = BUILT_IN["least_memory_bytes"].default
_LEAST_PART: float = BUILT_IN["least_gpu_part"].default
_MOST_RETRIES: int = BUILT_IN["most_retries"].default
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: set by the cluster itself in every cell
_OWN_VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "GPU_RUN_DIR", "JUPYTER_GPU_RUN", "JUPYTER_GPU_CLUSTER"})


@dataclass(frozen=True)
class RunOptions:
    """Requests of a ``%%gpu_train`` line, checked. Names of variables are as the notebook has them.

    Attributes
    ----------
    ask : ResourceAsk
        GPUs, processes, memory and nodes: ``--gpus``, ``--ranks``, ``--nodes``, ``--ps``, ``--cpus``, ``--memory``, …
    send : tuple of str, optional
        ``--in``: exactly these names go to the run (None: those that the cell reads).
    send_more : tuple of str, default ()
        ``--in +NAME``: names that go along with those found.
    out : tuple of str, optional
        ``--out``: exactly these names come back (None: those that the cell binds).
    skip : tuple of str, default ()
        ``--skip``: names that neither go nor come back.
    gather : tuple of str, default ()
        ``--gather``: names that come back as a list, one value a rank.
    rank_timeout_s : float, optional
        ``--rank-timeout`` in seconds, above 0: a rank may stay behind the others for so long (None: without limit).
    is_gang : bool, default False
        ``--ranks`` was given, be it 1.
    queue : str, default ''
        ``--queue``: where it waits (empty: the user's default queue).
    priority : str, default 'normal'
        ``--priority``: ``low``, ``normal``, ``high`` or a number.
    timeout_s : float, optional
        ``--timeout`` in seconds, above 0: limit on running (None: without limit).
    wait_s : float, optional
        ``--wait`` in seconds, 0 or more: limit on queueing; 0: only if free now (None: without limit).
    on_disconnect : str, default 'continue'
        ``--on-disconnect``: ``continue`` or ``cancel`` when contact with this kernel is lost.
    retries : int, default 0
        ``--retries``: it runs again so often when the infrastructure failed, not the code.
    restartable : bool, optional
        ``--restartable``: it may be preempted, and is resumed later (None: as its queue says).
    env : dict of str to str, default {}
        ``--env``: environment variables of the cell.
    export : tuple of str, default ()
        ``--export``: environment variables of the kernel that go along.
    environment : str, default 'auto'
        ``--environment``: ``auto``, ``cluster`` for nothing but the cluster's packages, or one that the operator named.
    pip : str, default ''
        ``--pip``: packages for the cell, with spaces between.
    workdir : str, optional
        ``--workdir``: the cell's folder (None: the notebook's, where the node sees it).
    name : str, default ''
        ``--name``: label of the run in lists.
    fresh : bool, default False
        ``--fresh``: a new interpreter instead of a fork.
    pin : bool, default False
        ``--pin``: the results are never removed.
    estimate : bool, default False
        ``--estimate``: say what would be, run nothing.
    cache : bool, default False
        ``--cache``: take stored results of the same code and inputs.
    in_background : bool, default False
        ``--async`` or ``--detach``: the cell returns at once.
    detach : bool, default False
        ``--detach``: the run goes on without this kernel.
    keep_s : float, default 0.0
        ``--keep`` in seconds: the GPUs stay so long with the kernel after the cell.
    keep_auto : bool, default False
        ``--keep auto``: they stay while nobody waits for them, ``keep_s`` at most.
    """

    ask: ResourceAsk
    send: tuple[str, ...] | None = None
    send_more: tuple[str, ...] = ()
    out: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    gather: tuple[str, ...] = ()
    rank_timeout_s: float | None = None
    is_gang: bool = False
    queue: str = ""
    priority: str = "normal"
    timeout_s: float | None = None
    wait_s: float | None = None
    on_disconnect: str = "continue"
    retries: int = 0
    restartable: bool | None = None
    env: dict[str, str] = field(default_factory=dict)
    export: tuple[str, ...] = ()
    environment: str = "auto"
    pip: str = ""
    workdir: str | None = None
    name: str = ""
    fresh: bool = False
    pin: bool = False
    estimate: bool = False
    cache: bool = False
    in_background: bool = False
    detach: bool = False
    keep_s: float = 0.0
    keep_auto: bool = False


def build_options(written: Written) -> RunOptions:
    """Check ``written`` as a whole.

    Parameters
    ----------
    written
        Options by name, as text; None for one that stands alone.

    Raises
    ------
    OptionError
        A value is out of its range, or two options contradict each other.
    """
    send, send_more = _send(written)
    out, skip = _names(written, "out"), _names(written, "skip") or ()
    for chosen, option in ((send, "in"), (send_more, "in"), (out, "out")):
        both = sorted(set(chosen or ()) & set(skip))
        if both:
            raise OptionError(f"{both[0]} is in --{option} and in --skip", hint="leave it out of one of them")
    gather = _names(written, "gather") or ()
    _check_gather(gather, out, skip)
    ask, rank_timeout_s = _ask(written), _seconds(written, "rank-timeout", may_be_zero=False)
    if rank_timeout_s is not None and ask.ranks == 1:
        raise OptionError(
            "--rank-timeout is for several ranks: it ends a gang in which one stays behind",
            hint="write --timeout for a limit of the cell, or --ranks for a gang",
        )
    restartable = _flag(written, "restartable")
    if restartable and (ask.ps or ask.evaluator):
        raise OptionError(
            f"--restartable with {'--ps' if ask.ps else '--evaluator'}: what serves the ranks cannot be saved",
            hint="leave --restartable out; --retries 2 runs it again when a node dies",
        )
    keep_s, keep_auto = _keep(written)
    return RunOptions(
        ask=ask,
        send=send,
        send_more=send_more,
        out=out,
        skip=skip,
        gather=gather,
        rank_timeout_s=rank_timeout_s,
        is_gang="ranks" in written,
        queue=_text(written, "queue") or "",
        priority=_priority(written),
        timeout_s=_seconds(written, "timeout", may_be_zero=False),
        wait_s=_seconds(written, "wait", may_be_zero=True),
        on_disconnect=_one_of(written, "on-disconnect"),
        retries=_retries(written),
        restartable=restartable,
        env=_env(written),
        export=_keys(written, "export"),
        environment=_environment(written),
        pip=_pip(written),
        workdir=_text(written, "workdir"),
        name=_text(written, "name") or "",
        fresh=bool(_flag(written, "fresh")),
        pin=bool(_flag(written, "pin")),
        estimate=bool(_flag(written, "estimate")),
        cache=bool(_flag(written, "cache")),
        in_background=bool(_flag(written, "async") or _flag(written, "detach")),
        detach=bool(_flag(written, "detach")),
        keep_s=keep_s,
        keep_auto=keep_auto,
    )


def _flag(written: Written, name: str) -> bool | None:
    """Tell if it is set, or taken back; None: nothing is said of it."""
    return is_on(OPTIONS[name], written[name][0]) if name in written else None


def _check_gather(gather: tuple[str, ...], out: tuple[str, ...] | None, skip: tuple[str, ...]) -> None:
    for name in gather:
        if name in skip:
            raise OptionError(f"{name} is in --gather and in --skip", hint="leave it out of one of them")
        if out is not None and name not in out:
            raise OptionError(
                f"--gather {name}: --out does not return it", hint=f"add it: --out {','.join((*out, name))}"
            )


def _ask(written: Written) -> ResourceAsk:
    from ..protocol.runs import ResourceAsk

    gpus, gpu_type = _gpus(_text(written, "gpus") or "1")
    part_bytes = _part_bytes(written, gpus)
    asked_type = _text(written, "gpu-type")
    if gpu_type and asked_type and gpu_type.lower() != asked_type.lower():
        raise OptionError(f"--gpus {gpu_type}:{gpus} and --gpu-type {asked_type} name two types", hint="name one")
    gpu_type = gpu_type or asked_type
    least = _bytes(written, "min-gpu-memory")
    if gpus == 0 and (gpu_type or least):
        option = "min-gpu-memory" if least else "gpu-type"
        raise OptionError(f"--gpus 0 with --{option}: a CPU stage has no GPU", hint=f"leave --{option} out")
    _check_part(written, gpus)
    shape = gang_shape(math.ceil(gpus), _text(written, "ranks"), _text(written, "nodes"), _text(written, "ps"))
    min_gpus = _min_gpus(math.ceil(gpus), shape, _text(written, "min-gpus"), has_nodes="nodes" in written)
    return ResourceAsk(
        gpus=gpus,
        ranks=shape.ranks,
        nodes=shape.nodes,
        any_nodes=shape.any_nodes or min_gpus is not None,
        may_spread=shape.may_spread,
        ps=shape.ps,
        evaluator=shape.evaluator,
        cpus=_cpus(written),
        memory_bytes=_bytes(written, "memory"),
        gpu_type=gpu_type,
        min_gpu_memory_bytes=least,
        labels=dict(_pair(text, "label") for text in written.get("label", ())),
        min_gpus=min_gpus,
        gpu_memory_bytes=part_bytes,
    )


def _part_bytes(written: Written, gpus: float) -> int | None:
    size = _bytes(written, "gpu-memory")
    if size is not None and gpus != 1:
        hint = "leave one of them out"
        raise OptionError(f"--gpus {gpus:g} with --gpu-memory: both say how much of a GPU", hint=hint)
    return size


def _check_part(written: Written, gpus: float) -> None:
    """A part of a GPU is one rank's (NCCL takes no two ranks on one GPU), and is given back at once."""
    if gpus == int(gpus) and "gpu-memory" not in written:
        return
    what = "--gpu-memory" if "gpu-memory" in written else f"--gpus {gpus:g}"
    for name, alone in (("ranks", "1"), ("nodes", "1"), ("min-gpus", "")):
        if (text := _text(written, name)) is not None and text != alone:
            hint = f"leave --{name} out, or ask for whole GPUs"
            raise OptionError(f"{what} with --{name} {text}: a part of a GPU is for one rank", hint=hint)
    if _keep(written)[0]:
        raise OptionError(f"{what} with --keep: a GPU that is shared is not kept", hint="leave --keep out")


def _min_gpus(gpus: int, shape: GangShape, text: str | None, *, has_nodes: bool) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= max(1, gpus):
        raise OptionError(f"--min-gpus {text}: not a number of GPUs from 1 to {gpus}", hint="write --min-gpus 1")
    if shape.ranks == 1:
        hint = f"write --ranks {max(gpus, 2)}, or leave --min-gpus out"
        raise OptionError("--min-gpus without --ranks: it is the number of ranks that may be smaller", hint=hint)
    each = gpus // shape.ranks
    if int(text) % each:
        hint = f"write --min-gpus {-(-int(text) // each) * each}"
        raise OptionError(f"--min-gpus {text}: each rank has {each} GPUs", hint=hint)
    if has_nodes and not shape.any_nodes:
        hint = "write --nodes any, or leave --nodes out"
        raise OptionError("--min-gpus with a number of nodes: the ranks are wherever there is room", hint=hint)
    return int(text)


def _gpus(text: str) -> tuple[float, str | None]:
    gpu_type, colon, number = text.rpartition(":")
    if colon and not gpu_type:
        raise OptionError(f"--gpus {text}: the type is missing", hint="write --gpus 2 or --gpus h100:2")
    if re.fullmatch(r"[0-9]{0,6}\.[0-9]+", number):
        return _part(text, float(number)), gpu_type or None
    if not re.fullmatch(r"[0-9]{1,6}", number):
        raise OptionError(f"--gpus {text}: not a number of GPUs", hint="write --gpus 2 or --gpus h100:2")
    return int(number), gpu_type or None


def _part(text: str, part: float) -> float:
    """A share of one GPU, as whole hundredths of it."""
    if part > 1:
        hint = f"write --gpus {math.ceil(part)}, or a part of one GPU such as --gpus 0.5"
        raise OptionError(f"--gpus {text}: several GPUs are whole ones", hint=hint)
    if part < _LEAST_PART:
        hint = f"write --gpus {_LEAST_PART:g} or more, or --gpus 0 for a CPU stage"
        raise OptionError(f"--gpus {text}: the smallest part of a GPU is {_LEAST_PART:g}", hint=hint)
    if abs(part * 100 - round_number(part * 100)) > 1e-6:
        hint = f"write --gpus {max(_LEAST_PART, round_number(part, 2)):g}"
        raise OptionError(f"--gpus {text}: a part of a GPU is in hundredths", hint=hint)
    return int(part) if part == 1 else part


def _cpus(written: Written) -> float | None:
    text = _text(written, "cpus")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) or float(text) <= 0:
        raise OptionError(f"--cpus {text}: not a number of cores", hint="write --cpus 4")
    return float(text)


def _bytes(written: Written, name: str) -> int | None:
    text = _text(written, name)
    if text is None:
        return None
    size = parse_bytes(text, option=f"--{name}")
    if size < _LEAST_BYTES:  # a forgotten unit, most likely
        number = re.sub(r"[^0-9.]", "", text)
        raise OptionError(
            f"--{name} {text} is {f'{size} bytes' if size < 1024 else format_bytes(size)}, less than any process needs",
            hint=f"write --{name} {number}GiB (at least {format_bytes(_LEAST_BYTES)})",
        )
    return size


def _seconds(written: Written, name: str, *, may_be_zero: bool) -> float | None:
    text = _text(written, name)
    if text is None:
        return None
    seconds = parse_seconds(text, option=f"--{name}")
    if seconds <= 0 and not may_be_zero:
        raise OptionError(f"--{name} {text}: must be more than 0", hint=f"leave --{name} out for no limit")
    return seconds


def _keep(written: Written) -> tuple[float, bool]:
    text = _text(written, "keep")
    if text is None:
        return 0.0, False
    from ..protocol.runs import AUTO_KEEP_S

    if text.lower() == "auto":
        return AUTO_KEEP_S, True
    try:
        return parse_seconds(text, option="--keep"), False
    except OptionError as error:
        hint = "write --keep 30s, --keep 10m, --keep auto, or --keep 0 for not at all"
        raise OptionError(error.message, hint=hint) from None


def _retries(written: Written) -> int:
    text = _text(written, "retries") or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > _MOST_RETRIES:
        raise OptionError(
            f"--retries {text}: not a number of tries", hint=f"write --retries 2 (at most {_MOST_RETRIES})"
        )
    return int(text)


def _priority(written: Written) -> str:
    words = OPTIONS["priority"].values
    word = (_text(written, "priority") or "normal").lower()
    if word not in words and not re.fullmatch(r"-?[0-9]{1,6}", word):
        raise OptionError(
            f"--priority {word}: not a priority", hint=f"write --priority {', '.join(words)}, or a number"
        )
    return word


def _environment(written: Written) -> str:
    word = _text(written, "environment") or "auto"
    if word == "cluster" and _text(written, "pip"):
        raise OptionError("--pip with --environment cluster: nothing is added to it", hint="leave one of them out")
    return word


def _pip(written: Written) -> str:
    text = _text(written, "pip") or ""
    if text:  # only who asks for packages waits for this import
        from .requested_packages import read_requests

        read_requests(text)
    return text


def _one_of(written: Written, name: str) -> str:
    words = OPTIONS[name].values
    word = _text(written, name) or words[0]
    if word not in words:
        raise OptionError(f"--{name} {word}: not one of {', '.join(words)}", hint=f"write --{name} {words[0]}")
    return word


def _text(written: Written, name: str) -> str | None:
    values = written.get(name)
    if not values:
        return None
    if not values[0].strip():
        raise OptionError(f"--{name} is empty", hint=f"write --{name} {OPTIONS[name].metavar}")
    return values[0].strip()


def _comma_list(values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (part.strip() for part in value.split(",")) if word]


def _send(written: Written) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """``--in a,b``: exactly these; ``--in +a``: these too."""
    words = _comma_list(written.get("in", ()))
    more = [word[1:] for word in words if word.startswith("+")]
    exact = [word for word in words if not word.startswith("+")]
    only_more = bool(more) and not exact
    return (None if only_more else _names({**written, "in": exact} if words else written, "in")), _checked(more, "in")


def _names(written: Written, name: str) -> tuple[str, ...] | None:
    return _checked(_comma_list(written[name]), name) if name in written else None


def _checked(names: list[str], name: str) -> tuple[str, ...]:
    for word in names:
        if not word.isidentifier():
            raise OptionError(f"--{name} {word}: not a name of the notebook", hint=f"write --{name} a,b")
    return tuple(dict.fromkeys(names))


def _keys(written: Written, name: str) -> tuple[str, ...]:
    keys = _comma_list(written.get(name, ()))
    for key in keys:
        _check_key(key, name)
    return tuple(dict.fromkeys(keys))


def _check_key(key: str, option: str) -> None:
    if not _KEY.fullmatch(key):
        raise OptionError(f"--{option} {key}: not the name of a variable", hint=f"write --{option} KEY")
    if key in _OWN_VARIABLES:
        raise OptionError(f"--{option} {key}: the cluster sets this one itself", hint=f"leave --{option} {key} out")


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--{option} {text}: not KEY=VALUE", hint=f"write --{option} KEY=VALUE")
    return key.strip(), value


def _env(written: Written) -> dict[str, str]:
    env = dict(_pair(text, "env") for text in written.get("env", ()))
    for key in env:
        _check_key(key, "env")
    both = sorted(set(env) & set(_comma_list(written.get("export", ()))))
    if both:
        raise OptionError(f"{both[0]} is in --env and in --export", hint="leave it out of one of them")
    return env


def written_options(request: RunRequest) -> dict[str, str]:
    """Options that differ from their defaults, and the number of GPUs: name → value, empty for a flag."""
    found = _written_ask(request.ask, is_gang=request.is_gang)
    times = {
        "timeout": request.timeout_s,
        "wait": request.wait_s,
        "rank-timeout": request.rank_timeout_s,
        "keep": request.keep_s or None,
    }
    found |= {name: format_seconds(value) for name, value in times.items() if value is not None}
    words = {"keep": "auto" if request.keep_auto else "", "name": request.name}
    words |= {"queue": _unless(request.queue, "default"), "priority": _unless(request.priority, "normal")}
    words["retries"] = str(request.retries) if request.retries else ""
    words["on-disconnect"] = _unless(request.on_disconnect, "continue")
    found |= {name: value for name, value in words.items() if value}
    flags = {"cache": bool(request.cache_key), "detach": request.detach, "fresh": request.fresh, "pin": request.pin}
    flags["restartable"] = bool(request.restartable)
    return found | {name: "" for name, is_set in flags.items() if is_set}


def _written_ask(ask: ResourceAsk, *, is_gang: bool) -> dict[str, str]:
    found = {"gpus": str(ask.gpus)}
    numbers = {"ranks": ask.ranks if is_gang else 1, "nodes": ask.nodes}
    found |= {name: str(value) for name, value in numbers.items() if value > 1}
    found |= {"nodes": "any"} if ask.any_nodes and not ask.may_spread else {}
    if ask.min_gpus is not None:
        found["min-gpus"] = str(ask.min_gpus)
    if ask.ps or ask.evaluator:
        found["ps"] = f"{ask.ps},evaluator" if ask.evaluator else str(ask.ps)
    if ask.gpu_type:
        found["gpu-type"] = ask.gpu_type
    if ask.cpus is not None:
        found["cpus"] = f"{ask.cpus:g}"
    if ask.gpu_memory_bytes is not None:
        del found["gpus"]
    sizes = {"gpu-memory": ask.gpu_memory_bytes, "memory": ask.memory_bytes, "min-gpu-memory": ask.min_gpu_memory_bytes}
    found |= {name: format_bytes(size).replace(" ", "") for name, size in sizes.items() if size is not None}
    if ask.labels:
        found["label"] = " ".join(f"{name}={value}" for name, value in ask.labels.items())
    return found


def _unless(value: str, default: str) -> str:
    return "" if value == default else value
