"""The reference that the code writes: settings, options, commands, errors, metrics, states (``make reference``)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import settings_page
from prometheus_client import REGISTRY
from tables import table

from jupyter_gpu_release import errors
from jupyter_gpu_release.analysis.cache_key import RULES
from jupyter_gpu_release.cli import parser
from jupyter_gpu_release.options.definitions import GROUPS, Option
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.server_extension import metrics as _registered  # noqa: F401

#: the page with examples of an option, below ``docs/use/``
_PAGE_OF_OPTION = {
    "gpus": "gpus",
    "min-gpus": "gangs",
    "ranks": "gangs",
    "nodes": "gangs",
    "ps": "gang-frameworks",
    "gpu-type": "gpus",
    "gpu-memory": "parts",
    "min-gpu-memory": "gpus",
    "cpus": "gpus",
    "memory": "gpus",
    "label": "gpus",
    "queue": "queues",
    "priority": "queues",
    "in": "values",
    "out": "values",
    "skip": "values",
    "timeout": "gpus",
    "wait": "gpus",
    "on-disconnect": "stop",
    "restartable": "restartable",
    "retries": "node-failures",
    "env": "files",
    "export": "files",
    "environment": "packages",
    "pip": "packages",
    "workdir": "files",
    "name": "sidebar",
    "fresh": "packages",
    "estimate": "gpus",
    "keep": "keep",
    "async": "background",
    "detach": "background",
    "cache": "cache",
    "pin": "results",
    "gather": "gangs",
    "rank-timeout": "gang-failures",
}
#: the page with examples of a command, below ``docs/``
_PAGE_OF_COMMAND = {
    "start": "operate/one-machine",
    "stop": "operate/one-machine",
    "status": "use/status",
    "queues": "use/queues",
    "report": "use/status",
    "runs": "use/status",
    "cancel": "use/stop",
    "preempt": "use/restartable",
    "token": "operate/tokens",
    "nodes": "operate/drain",
    "environments": "operate/environments",
    "notify": "use/notifications",
    "gc": "use/results",
    "attach": "use/come-back",
    "simulate": "operate/simulator",
    "advise": "writing-a-cell",
    "docs": "index",
    "mcp": "use/assistants",
    "doctor": "operate/doctor",
}


def options_page() -> str:
    """Every option of ``%%gpu_train``, from the table that its parser reads."""
    groups = [
        f"## {title.capitalize()}\n\n{table(('option', 'meaning', 'key'), map(_row_of_option, options))}"
        for title, options in GROUPS.items()
    ]
    intro = """Of `%%gpu_train`; with `_` for `-` also of `launch` and `@gpu`. In brackets: the default.

Sizes are written `512MiB`, `40GiB` (or `40GB`, powers of 1000), durations `30s`, `10m`, `2h`, `1h30m`. Lists are
separated by commas, with or without blanks. `--name value` and `--name=value` are the same.

Contradictions are refused before anything starts. Examples: GPUs that cannot be divided among the ranks, `--ps`
without ranks, a name both sent and held back.

*Key*: whether the option is part of [the key of `--cache`](../reference.md#the-key-of---cache), and why."""
    return _page("# Options", intro, *groups)


def _row_of_option(option: Option) -> tuple[str, str, str]:
    rule = RULES[option.name]
    return (
        f"[`{f'--{option.name} {option.metavar}'.strip()}`](../use/{_PAGE_OF_OPTION[option.name]}.md)",
        option.help,
        f"{'yes' if rule.counts else 'no'}: {rule.why}",
    )


def commands_page() -> str:
    """Every command with its words and flags, from the grammar that reads them."""
    intro = "`jupyter gpu COMMAND`, also `jupyter-gpu COMMAND`. `--help` behind each shows the same."
    return _page("# Commands", intro, *(_command(name, each) for name, each in parser.build()[1].items()))


def _command(name: str, command: argparse.ArgumentParser) -> str:
    rows = [(_written(each), each.help or "") for each in _shown(command._actions)]
    exclusive = [
        f"At most one of {', '.join(f'`{_first(each)}`' for each in _shown(group._group_actions))}."
        for group in command._mutually_exclusive_groups
    ]
    page = _PAGE_OF_COMMAND[name.partition(" ")[0]]
    meaning = command.description or ""
    text = f"{meaning[0].upper()}{meaning[1:]}. [How to use it](../{page}.md)."
    tables = [table(("word", "meaning"), rows)] if rows else []
    return "\n\n".join([f"## jupyter gpu {name}", text, *tables, *exclusive])


def _shown(actions: list[argparse.Action]) -> Iterator[argparse.Action]:
    for each in actions:
        if each.help != argparse.SUPPRESS and not isinstance(each, argparse._HelpAction | argparse._SubParsersAction):
            yield each


def _first(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar)


def _written(action: argparse.Action) -> str:
    return f"`{_first(action)} {action.metavar}`" if action.option_strings and action.metavar else f"`{_first(action)}`"


def errors_page() -> str:
    """Every error of ours with its code and the status that the gateway answers with."""
    rows = [
        (f"`{kind.__name__}`", (kind.__doc__ or "").replace("``", "`"), f"`{kind.code}`", str(kind.http_status))
        for kind in _errors(errors.GpuReleaseError)
    ]
    intro = (
        "All derive from `jupyter_gpu_release.errors.GpuReleaseError`. Each says what is wrong; `hint` says what to do."
    )
    return _page("# Errors", intro, table(("error", "when", "code", "HTTP"), rows))


def _errors(kind: type[errors.GpuReleaseError]) -> Iterator[type[errors.GpuReleaseError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__ and not child.__name__.startswith("_"):
            yield child
        yield from _errors(child)


def metrics_page() -> str:
    """Every figure that a Jupyter server adds to its ``/metrics``."""
    found = {each.name: each for each in REGISTRY.collect() if each.name.startswith("jupyter_gpu_")}
    rows = [
        (f"`{name}{'_total' if each.type == 'counter' else ''}`", each.type, each.documentation)
        for name, each in sorted(found.items())
    ]
    intro = "Of a Jupyter server with the extension, at its `/metrics`. The gateway has none."
    return _page("# Metrics", intro, table(("name", "type", "meaning"), rows))


def states_page() -> str:
    """Every state of a run."""
    rows = [
        (f"`{state.word}`", state.meaning, "yes" if state.holds_gpu else "no", "yes" if state.is_terminal else "no")
        for state in RunState
    ]
    intro = "Of a run, as `status`, `runs` and their `--json` write them."
    return _page("# States", intro, table(("state", "meaning", "it holds its GPUs", "it is over"), rows))


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


#: page below ``docs/`` → its text
PAGES: dict[str, Callable[[], str]] = {
    "settings": settings_page.page,
    "reference/options": options_page,
    "reference/commands": commands_page,
    "reference/errors": errors_page,
    "reference/metrics": metrics_page,
    "reference/states": states_page,
}


def write(docs: Path) -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        file = docs / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
