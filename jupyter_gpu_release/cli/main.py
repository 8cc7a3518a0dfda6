"""``jupyter-gpu`` (``jupyter gpu …``): reads the command, runs it, turns errors into a message and an exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from ..errors import GpuReleaseError, OptionError
from .parser import parse, print_help

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; never lets a traceback out for an error of ours."""
    if words is None and "_ARGCOMPLETE" in os.environ:
        from .authoring.completion import complete

        complete()
    try:
        arguments = parse(sys.argv[1:] if words is None else words)
        if arguments.command is None:
            print_help()
            return EXIT_USAGE
        return _command(arguments.command)(arguments)
    except OptionError as error:
        return _explain(error, EXIT_USAGE)
    except GpuReleaseError as error:
        return _explain(error, EXIT_FAILED)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader (`| head`) has enough
        sys.stderr.close()
        return EXIT_OK


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    # imported when asked for: `jupyter gpu --help` must not wait for an HTTP client
    if name in ("start", "stop"):
        from . import cluster

        return {"start": cluster.start, "stop": cluster.stop}[name]
    if name == "doctor":
        from .admin import doctor

        return doctor.run
    if name == "advise":
        from .authoring import advise

        return advise.run
    if name == "docs":
        from .authoring import docs

        return docs.run
    if name == "mcp":
        from . import mcp

        return mcp.run
    if name == "token":
        from .admin import tokens

        return tokens.token
    if name == "environments":
        from .admin import environments

        return environments.environments
    if name == "nodes":
        from .admin import nodes

        return nodes.nodes
    if name == "notify":
        from . import notify

        return notify.run
    if name == "gc":
        from .admin import gc

        return gc.run
    if name == "simulate":
        from . import simulate

        return simulate.run
    if name == "attach":
        from . import runs

        return runs.attach
    from . import runs

    return {
        "status": runs.status,
        "queues": runs.queues,
        "report": runs.report,
        "runs": runs.runs,
        "cancel": runs.cancel,
        "preempt": runs.preempt,
    }[name]


def _explain(error: GpuReleaseError, status: int) -> int:
    sys.stderr.write(f"{error.message}\n")
    if error.hint:
        sys.stderr.write(f"  → {error.hint}\n")
    return status
