"""Commands of ``jupyter gpu`` and their flags."""

from __future__ import annotations

import msgspec

from .setting import Setting, Unit

_SECONDS, _BYTES, _COUNT, _NUMBER = Unit.SECONDS, Unit.BYTES, Unit.COUNT, Unit.NUMBER
_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


class Command(msgspec.Struct, frozen=True):
    """One command. ``flags``: name in the code → flag, or word without dashes (``is_word``)."""

    help: str
    flags: dict[str, Setting] = {}


def _switch(text: str, group: str = "") -> Setting:
    return Setting(help=text, default=False, unit=Unit.YES, group=group)


def _word(metavar: str, text: str, *, required: bool = True, group: str = "") -> Setting:
    return Setting(help=text, default=None, metavar=metavar, is_word=True, required=required, group=group)


def _given(metavar: str, text: str, default: str | None = None, *, required: bool = False, group: str = "") -> Setting:
    return Setting(help=text, default=default, metavar=metavar, required=required, group=group)


_JSON = _switch("print one JSON document (schema_version 1)")
_LIVE = _word("RUN", "its id, or `last`: the newest that is not over")
_NODE = _word("NODE[:GPU]", "its host, or the beginning of its id; with the GPU's number that GPU only")
_DIGEST = _word("DIGEST", "the beginning of its digest, as `jupyter gpu environments` shows it")

#: full name → command
COMMANDS: dict[str, Command] = {
    "start": Command(
        "start a cluster on this machine, or put the gateway on an existing Ray cluster",
        {
            "gpus": Setting(
                help="use N real GPUs",
                default=None,
                unit=_COUNT,
                otherwise="all",
                least=1,
                noun="a number",
                example="2",
                metavar="N",
                group="cluster",
            ),
            "simulated_gpus": Setting(
                help="N simulated GPUs",
                default=None,
                unit=_COUNT,
                otherwise="4 where there is no real one",
                least=1,
                noun="a number",
                example="2",
                metavar="N",
                group="cluster",
            ),
            "address": Setting(
                help="GCS of a Ray cluster that runs already",
                default=None,
                otherwise="a cluster of its own",
                pattern=f"(?!.*://).+:{_PORT}",
                noun="HOST:PORT",
                example="10.0.0.5:6379 (Ray's GCS)",
                metavar="HOST:PORT",
                group="cluster",
            ),
            "host": Setting(help="address that the gateway listens on", default="127.0.0.1", metavar="HOST"),
            "port": Setting(
                help="port of the gateway",
                default=0,
                unit=_COUNT,
                otherwise="a free one",
                most=65535,
                noun="a port",
                example="8765 (1 to 65535, or 0 for a free one)",
                metavar="P",
            ),
            "tls_cert": Setting(
                help="the gateway's certificate (PEM): it speaks TLS", otherwise="plain text", metavar="FILE"
            ),
            "tls_key": Setting(
                help="the certificate's key (PEM, without a passphrase, 0600)", otherwise="none", metavar="FILE"
            ),
            "proxy_url": Setting(
                help="address of a proxy before the gateway, such as https://gpu.example.org/team",
                otherwise="none",
                metavar="URL",
            ),
            "allow_plain_text": Setting(
                help="no TLS although other machines connect: a network you trust", default=False, unit=Unit.YES
            ),
            "store": Setting(
                help="root of the run folders",
                default=None,
                otherwise="JUPYTER_GPU_STORE, else store below JUPYTER_GPU_HOME",
                metavar="PATH",
            ),
            "queues": Setting(
                help="queues, and who may use them; read again when it changes",
                default=None,
                otherwise="one queue for all",
                metavar="FILE",
            ),
            "slurm": Setting(
                help="borrow nodes from Slurm as cells need them; the file says which",
                default=None,
                otherwise="this machine's GPUs",
                metavar="FILE",
                group="cluster",
            ),
            "upgrade": Setting(
                help="put this version's gateway in the place of the running one; cells go on",
                default=False,
                unit=Unit.YES,
            ),
        },
    ),
    "stop": Command(
        "end the cluster of this machine and every process that it started",
        {
            "yes": _switch("do not ask, whatever runs there: for scripts", "how"),
            "drain": _switch("first wait until what runs has ended; nothing new begins", "how"),
        },
    ),
    "status": Command("who holds which GPU, who waits and why", {"json": _JSON}),
    "queues": Command("the queues: what each is guaranteed, uses and is due, and who waits in it", {"json": _JSON}),
    "report": Command(
        "GPU-hours that your runs held, and their price (for admins: everybody's)",
        {
            "json": _JSON,
            "last": Setting(
                help="of the time up to now: 12h, 7d", default=30 * 86400.0, unit=_SECONDS, least=1.0, metavar="TIME"
            ),
        },
    ),
    "runs": Command(
        "the runs so far, newest first; `runs show RUN` for one of them",
        {
            "json": _JSON,
            "limit": Setting(
                help="at most N runs", default=20, unit=_COUNT, least=1, noun="a number", example="20", metavar="N"
            ),
            "action": _word(
                "ACTION",
                "show one run; pin it (its results are never collected), or unpin it; export it to FILE; import FILE",
                required=False,
            ),
            "run": _word("RUN", "which run: its id, or `last` (import: the file)", required=False),
            "file": _word("FILE", "export to it (RUN.jgr.tar)", required=False),
            "trust": _switch("import what was not exported here: loading it runs its code"),
            "mine": _switch("only your own; of others' runs less is shown"),
        },
    ),
    "cancel": Command("end a run: interrupt it, keep what it made so far, free its GPUs", {"run": _LIVE}),
    "preempt": Command("preempt a restartable run: it is saved, frees its GPUs, and is resumed later", {"run": _LIVE}),
    "token": Command("tokens of the gateway's users: make, list, revoke (for admins)"),
    "token create": Command(
        "make a token; it is shown once, or written into a file",
        {
            "user": _given("U", "whose token it is; runs belong to this name", required=True),
            "role": Setting(
                help="`user` (own runs), `admin` (everything) or `assistant` (changes its own runs only)",
                default="user",
                choices=("user", "admin", "assistant"),
                metavar="ROLE",
            ),
            "expires": Setting(help="such as 12h or 30d, at most 10 years, or `never`", default="30d", metavar="TIME"),
            "label": _given("L", "a note for `token list`", ""),
            "out": _given("FILE", "write the token into this new file (0600), show nothing"),
        },
    ),
    "token list": Command("the tokens: whose, since when, until when, last used", {"json": _JSON}),
    "token revoke": Command(
        "refuse a token from now on and close what it opened",
        {
            "id": _word("ID", "the token's id, as `token list` shows it", required=False, group="which"),
            "user": _given("U", "all tokens of this user", required=True, group="which"),
        },
    ),
    "nodes": Command("the nodes; take one out for maintenance and in again (for admins)", {"json": _JSON}),
    "nodes drain": Command(
        "give a node or a GPU no new runs; those on it go on to their end",
        {
            "node": _NODE,
            "reason": _given("TEXT", "shown to those who wait", ""),
            "wait": _switch("return when nothing runs there any more"),
        },
    ),
    "nodes resume": Command("give runs to a node or a GPU again", {"node": _NODE}),
    "environments": Command("environments with notebooks' packages on the nodes (for admins)", {"json": _JSON}),
    "environments list": Command("those that are ready, with their nodes and their last use", {"json": _JSON}),
    "environments show": Command("the packages of one, and its nodes", {"digest": _DIGEST, "json": _JSON}),
    "environments build": Command(
        "build one that the operator has named on all nodes, before somebody needs it",
        {"name": _word("NAME", "its name in environments.yaml")},
    ),
    "environments remove": Command("remove one on all nodes where nobody uses it", {"digest": _DIGEST}),
    "notify": Command("how you are told of your detached runs: by mail, Slack or another webhook", {"json": _JSON}),
    "gc": Command(
        "remove old results from the store, and what nothing refers to any more",
        {
            "json": _JSON,
            "dry_run": _switch("only say how much is whose, what would go, and why"),
            "older_than": Setting(
                help="results that were not used for so long, such as 30d",
                default=0.0,
                unit=_SECONDS,
                otherwise="no limit",
                least=1.0,
                example="30d",
                metavar="TIME",
            ),
            "keep": Setting(
                help="all but the newest N runs of a notebook",
                default=0,
                unit=_COUNT,
                otherwise="no limit",
                least=1,
                noun="a number",
                example="20",
                metavar="N",
            ),
            "quota": Setting(
                help="the least recently used of who has more than SIZE, such as 50GiB",
                default=0,
                unit=_BYTES,
                otherwise="no limit",
                least=1,
                example="50GiB",
                metavar="SIZE",
            ),
        },
    ),
    "attach": Command(
        "show a run's output from its beginning, then live; Ctrl-C leaves it going on",
        {"run": _word("RUN", "its id, or `last`: the newest")},
    ),
    "simulate": Command(
        "what the scheduler would do with a cluster, queues and runs that are written down",
        {
            "json": _JSON,
            "trace": _word("TRACE.csv", "jobs to replay", required=False),
            "from_ledger": _switch("replay this cluster's own runs (the newest 10,000)"),
            "cluster": _given("FILE", "YAML: the nodes to replay them on", group="cluster"),
            "slurm": Setting(
                help="a file of `start --slurm`, in place of --cluster: its nodes are borrowed; each one is a column",
                default=[],
                otherwise="none",
                metavar="FILE",
                many="append",
                group="cluster",
            ),
            "node_wait": Setting(
                help="with --slurm: time that each of its jobs waits in Slurm's queue",
                default=300.0,
                unit=_SECONDS,
                metavar="TIME",
            ),
            "queues": Setting(
                help="a queues file; each one is a column of its own",
                default=[],
                otherwise="none",
                metavar="FILE",
                many="append",
            ),
            "policy": Setting(help="policies to compare", default=[], otherwise="all", metavar="NAME", many="extend"),
            "restartable": Setting(
                help="part of the jobs that may be preempted: 0.5",
                default=0.0,
                unit=_NUMBER,
                most=1.0,
                example="0.5",
                metavar="PART",
            ),
            "out": _given("DIR", "write tables and charts there (HTML, PNG, JSON)"),
            "scenario": _given("FILE", "JSON: a small cluster and its runs, instead"),
        },
    ),
    "advise": Command(
        "say which cells of a notebook are worth a GPU cell, what would travel, what GPU time that saves",
        {
            "notebook": _word("NOTEBOOK", "an .ipynb file; where it was run with times, they count"),
            "write": _given("FILE", "write a copy with the magics above those cells"),
            "json": _JSON,
        },
    ),
    "mcp": Command("let an assistant use the cluster: tools by the Model Context Protocol, on stdin and stdout"),
    "docs": Command(
        "show a page of the documentation; without PAGE, which there are",
        {"page": _word("PAGE", "such as tutorial, use/gangs, writing-a-cell", required=False)},
    ),
    "doctor": Command("check everything and say what to do about what is wrong", {"json": _JSON}),
}
