"""Numbers that users and operators meet, and that nobody can change: each says why."""

from __future__ import annotations

from .setting import Setting, Unit

_SECONDS, _BYTES, _COUNT, _NUMBER = Unit.SECONDS, Unit.BYTES, Unit.COUNT, Unit.NUMBER
_PROTOCOL = "both ends of the protocol reckon with it"
_PROTECTS = "it protects the gateway from one client's mistake"
_HALF = "it is no promise, only a bound on trouble"

BUILT_IN: dict[str, Setting] = {
    # -------------------------------------------------------------------------------------------- cells
    "interrupt_grace_s": Setting(
        help="Grace of a cell: time between the interrupt (■, `--timeout`, cancel) and its kill.",
        default=4.0,
        unit=_SECONDS,
        fixed="GPUs are held meanwhile, and a cell that reacts does so at once",
    ),
    "auto_keep_s": Setting(
        help="Longest time for which `--keep auto` keeps GPUs while nobody waits for them.",
        default=300.0,
        unit=_SECONDS,
        fixed="write `--keep 10m` for longer",
    ),
    "least_memory_bytes": Setting(
        help="Least `--memory` and `--min-gpu-memory`.",
        default=64 << 20,
        unit=_BYTES,
        fixed="no process needs less: a unit was forgotten",
    ),
    "least_gpu_part": Setting(
        help="Least part of a GPU, for `--gpus 0.05`.",
        default=0.05,
        unit=_NUMBER,
        fixed="each part has a CUDA context of its own",
    ),
    "cuda_context_bytes": Setting(
        help="Memory of a GPU that CUDA itself takes for each process; a part has room for as much again at least.",
        default=512 << 20,
        unit=_BYTES,
        fixed="it is the driver's and the libraries' code",
    ),
    "part_over_s": Setting(
        help="Time for which a cell may use more memory than its part of a GPU has; it is warned, then interrupted.",
        default=3.0,
        unit=_SECONDS,
        fixed="others need what it takes",
    ),
    "most_retries": Setting(
        help="Most `--retries`.", default=100, unit=_COUNT, fixed="a run that is lost so often is the reason"
    ),
    "gang_join_s": Setting(
        help="Longest wait of a gang for its nodes; then it is lost, and may be run again.",
        default=120.0,
        unit=_SECONDS,
        fixed="GPUs are held meanwhile: a node that died is noticed sooner, one that still loads libraries is not lost",
    ),
    "most_ranks": Setting(
        help="Most ranks of a run.", default=4096, unit=_COUNT, fixed="each is a bundle that Ray places, and a process"
    ),
    "inline_bytes": Setting(
        help="Inputs and results of at most this size in all travel in messages, larger ones through the store.",
        default=1 << 20,
        unit=_BYTES,
        fixed=_PROTOCOL,
    ),
    "shipped_modules_bytes": Setting(
        help="Local modules beside the notebook that travel with a cell, in all.",
        default=8 << 20,
        unit=_BYTES,
        fixed="they travel in a message; install a larger package on the nodes, or put it on the store",
    ),
    "shipped_modules": Setting(
        help="Files of local modules that travel with a cell.", default=2000, unit=_COUNT, fixed="as above"
    ),
    "tracked_files": Setting(
        help="Most files below a folder that `track` notes.",
        default=10_000,
        unit=_COUNT,
        fixed="track an archive or a list of them instead",
    ),
    "travelling_variable_bytes": Setting(
        help="Largest environment variable of a notebook that goes along with a cell.",
        default=4 << 10,
        unit=_BYTES,
        fixed="name a larger one with `--export`",
    ),
    "travelling_variables_bytes": Setting(
        help="All environment variables that go along with a cell.", default=64 << 10, unit=_BYTES, fixed="as above"
    ),
    # ------------------------------------------------------------------------------------------ contact
    "heartbeat_s": Setting(
        help="Time between two signs of life of a kernel.", default=5.0, unit=_SECONDS, fixed=_PROTOCOL
    ),
    "silence_s": Setting(
        help="Silence after which gateway and kernel take their connection for dead.",
        default=15.0,
        unit=_SECONDS,
        fixed=_PROTOCOL,
    ),
    "request_body_bytes": Setting(
        help="Largest body of a REST request.", default=32 << 20, unit=_BYTES, fixed=_PROTECTS
    ),
    "environment_packages": Setting(
        help="Most packages of an environment for a notebook's cells.", default=1000, unit=_COUNT, fixed=_PROTECTS
    ),
    "environment_wheel_bytes": Setting(
        help="Wheels of a notebook's own for one environment, in all.",
        default=256 << 20,
        unit=_BYTES,
        fixed="the gateway has them in memory while a node gets them",
    ),
    "message_bytes": Setting(
        help="Largest message of a kernel: inputs that travel inline, shipped modules, source.",
        default=64 << 20,
        unit=_BYTES,
        fixed=_PROTECTS,
    ),
    "user_sockets": Setting(
        help="Connections of one user at the same time: kernels' sessions and followed runs.",
        default=1000,
        unit=_COUNT,
        fixed=_PROTECTS,
    ),
    "listed_runs": Setting(
        help="Most runs in one list.", default=10_000, unit=_COUNT, fixed="the next page is asked for"
    ),
    "longest_token_s": Setting(
        help="Longest `--expires` of a token, besides `never`.",
        default=10 * 365 * 86_400.0,
        unit=_SECONDS,
        fixed="write `never`",
    ),
    # ---------------------------------------------------------------------------------------- placement
    "simulated_gpus": Setting(
        help="Simulated GPUs of a cluster on a machine without a real one.",
        default=4,
        unit=_COUNT,
        fixed="`--simulated-gpus N` says another number",
    ),
    "never_preempted_priority": Setting(
        help="Runs of this `--priority` and above are never preempted.",
        default=100,
        unit=_COUNT,
        fixed="a queue's `priority_ceiling` says who may use it",
    ),
    "most_lost": Setting(
        help="Times that a restartable run may be lost without a new save before it is begun no more.",
        default=3,
        unit=_COUNT,
        fixed="it may be the reason; `jupyter gpu runs show` tells what it did",
    ),
    "standby_pairs": Setting(
        help="Processes that stand by for the next cell on a node: one more than it has GPUs, at most this many.",
        default=9,
        unit=_COUNT,
        fixed="more have never been taken at once, and each takes memory",
    ),
    "prepared_pairs": Setting(
        help="The same of each fork server that was prepared for further libraries.",
        default=3,
        unit=_COUNT,
        fixed="one user's cells come one after the other",
    ),
    "prepared_unused_s": Setting(
        help="Time after its last use when a prepared fork server goes that no kernel's session holds any more.",
        default=600.0,
        unit=_SECONDS,
        fixed="it goes sooner where memory is short, or others are prepared",
    ),
    "prepare_s": Setting(
        help="Longest time for which a run waits for its libraries to be imported, before it waits for GPUs.",
        default=150.0,
        unit=_SECONDS,
        fixed="then its cell imports them itself",
    ),
    "estimated_runs": Setting(
        help="Waiting runs that are told when they start. Who is behind so many is told a place.",
        default=60,
        unit=_COUNT,
        fixed="further starts depend on ends that nobody can tell",
    ),
    # ---------------------------------------------------------------------------------------- saving
    "first_save_s": Setting(
        help="Time after which a `--restartable` cell is saved for the first time, without being asked.",
        default=60.0,
        unit=_SECONDS,
        fixed="`resumable(…, every=…)` says another time",
    ),
    "save_share": Setting(
        help="Saving takes at most one part in so many of a cell's time.",
        default=50,
        unit=_COUNT,
        fixed="`resumable(…, every=…)` says how often",
    ),
    "spill_after_s": Setting(
        help="Results that the store has refused for so long go to the node's spool.",
        default=5.0,
        unit=_SECONDS,
        fixed="they keep memory of the node until then",
    ),
    "memory_share": Setting(
        help="Part of a node's memory that cells may use.",
        default=0.9,
        unit=_NUMBER,
        fixed="the rest is for the agent, the store's cache and results that wait",
    ),
    "node_memory_bytes": Setting(
        help="Memory of a node that cells do not get where its share is less, as in a small batch job or container.",
        default=512 << 20,
        unit=_BYTES,
        fixed="measured: Ray, the agent and a fork server with numpy take 400 MiB",
    ),
    # ------------------------------------------------------------------------------- removal of results
    "left_alone_s": Setting(
        help="Results are not removed before nobody has used them for so long.",
        default=3600.0,
        unit=_SECONDS,
        fixed="a kernel that has just ended may come back for them",
    ),
    "reused_kept_s": Setting(
        help="Results that a later run reused (`--cache`), or was made from, stay for so long after that.",
        default=86_400.0,
        unit=_SECONDS,
        fixed=_HALF,
    ),
    "saved_kernels_kept_s": Setting(
        help="Variables of a kernel that the idle policy ended stay for so long; a later save or a collection then "
        "removes them.",
        default=30 * 86_400.0,
        unit=_SECONDS,
        fixed="they are copies for somebody who was away; move a file elsewhere to keep it",
    ),
    "unreferenced_kept_s": Setting(
        help="Blobs that no run names are removed when they are older.",
        default=3600.0,
        unit=_SECONDS,
        fixed="longer than any save takes",
    ),
    # ------------------------------------------------------------------------------------ notifications
    "messages_an_hour": Setting(
        help="Most mails and messages to one user in an hour.",
        default=60,
        unit=_COUNT,
        fixed="a mail server that sees more takes them for spam",
    ),
    "delivery_kept_s": Setting(
        help="A message that could not be sent for so long is given up.",
        default=86_400.0,
        unit=_SECONDS,
        fixed="nobody wants to be told of a run later than that",
    ),
    # ----------------------------------------------------------------------------------------- records
    "audit_file_bytes": Setting(
        help="Size of one file of the gateway's audit log. Five of them are kept.",
        default=5 << 20,
        unit=_BYTES,
        fixed="send it to a log server to keep more",
    ),
}
