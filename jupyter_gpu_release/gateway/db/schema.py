"""Tables."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, String, Table

SCHEMA_VERSION = 2
#: sums of GPU-hours reach a week back, and look at who held what a week before
COUNTED_S = 14 * 86400.0
metadata = MetaData()

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))

runs = Table(
    "runs",
    metadata,
    Column("run", String, primary_key=True),
    Column("ordinal", Integer, nullable=False),
    Column("user", String, nullable=False),
    Column("state", String, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("session", String, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("granted_at", Float),
    Column("running_at", Float),
    Column("gone_at", Float),
    Column("finished_at", Float),
    #: the whole view (msgpack), outcome apart; the columns above are what statements select and sum by
    Column("view", LargeBinary, nullable=False),
    Column("outcome", LargeBinary),
    #: the whole request; null once the run is terminal
    Column("request", LargeBinary),
    Index("runs_by_age", "submitted_at"),
    Index("runs_by_state", "state"),
    Index("runs_by_end", "finished_at"),
    Index("runs_by_ordinal", "ordinal"),
)

#: larger outcomes (inline values, pickled exceptions) are not read for a list: they have a summary
READ_WHOLE_BYTES = 4096
#: what lists show of an outcome, for outcomes that are too large to be read for a list
summaries = Table(
    "summaries", metadata, Column("run", String, primary_key=True), Column("summary", LargeBinary, nullable=False)
)

#: the trials of each sweep, and the run that drives it
trials = Table("trials", metadata, Column("sweep", String, primary_key=True), Column("run", String, primary_key=True))

#: which store (its ``store.json``) is meant by a path
stores = Table(
    "stores",
    metadata,
    Column("path", String, primary_key=True),
    Column("id", String, nullable=False),
    Column("since", Float, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("session", String, primary_key=True),
    Column("user", String, nullable=False),
    Column("state", String, nullable=False),
    Column("since", Float, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("lease", String, primary_key=True),
    Column("run", String, nullable=False),
    #: msgpack of the slots and GPU ids
    Column("placement", LargeBinary, nullable=False),
)

#: leases that are kept warm: by whom and until when (msgpack of protocol.runs.KeptLease)
warm_leases = Table(
    "warm_leases", metadata, Column("lease", String, primary_key=True), Column("kept", LargeBinary, nullable=False)
)

#: times for which GPUs were kept warm, one row each (a run's own time ends before)
warm_times = Table(
    "warm_times",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("user", String, nullable=False),
    Column("session", String, nullable=False),
    Column("run", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=False),
    #: what ended it, in words
    Column("ended_by", String, nullable=False),
    Index("warm_times_by_age", "until"),
)

#: parts of runs' lives on GPUs that were followed by others; the last is in ``runs``
attempts = Table(
    "attempts",
    metadata,
    Column("run", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("user", String, nullable=False),
    Column("session", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("since", Float, nullable=False),
    Column("running_at", Float),
    Column("until", Float, nullable=False),
    Index("attempts_by_age", "until"),
)

#: what runs go on from (msgpack of protocol.runs.Save)
saves = Table("saves", metadata, Column("run", String, primary_key=True), Column("save", LargeBinary, nullable=False))

tokens = Table(
    "tokens",
    metadata,
    Column("digest", String, primary_key=True),
    Column("label", String, nullable=False),
    Column("user", String, nullable=False),
    Column("role", String, nullable=False),
    Column("expires_at", Float),
    Column("created_at", Float, nullable=False),
)

#: results that were removed (or are being removed: ``done`` 0)
removals = Table(
    "removals",
    metadata,
    Column("run", String, primary_key=True),
    Column("reason", String, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("done", Integer, nullable=False),
)

#: when results were last loaded by a kernel and last taken by a later run
uses = Table(
    "uses",
    metadata,
    Column("run", String, primary_key=True),
    Column("loaded_at", Float, nullable=False),
    Column("reused_at", Float, nullable=False),
)

#: runs of other sessions (or earlier ones) that a session attached or loaded
holds = Table("holds", metadata, Column("session", String, primary_key=True), Column("run", String, primary_key=True))

#: what becomes of a token; apart from ``tokens``, which older ledgers have without it
token_facts = Table(
    "token_facts",
    metadata,
    Column("digest", String, primary_key=True),
    Column("created_by", String, nullable=False),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
)

#: mean use of a run's GPUs (0 to 1), where it was measured
gpu_use = Table("gpu_use", metadata, Column("run", String, primary_key=True), Column("mean", Float, nullable=False))

#: GPUs of the cluster from a time on, for each time when their number changed
capacity = Table(
    "capacity", metadata, Column("since", Float, primary_key=True), Column("gpus", Integer, nullable=False)
)

#: when kernels' sessions ended; ``sessions`` forgets them after an hour
session_ends = Table(
    "session_ends", metadata, Column("session", String, primary_key=True), Column("ended_at", Float, nullable=False)
)

#: how users want to be told of their detached runs (msgpack of db.notifications.Preferences; webhooks are secrets)
notify_preferences = Table(
    "notify_preferences",
    metadata,
    Column("user", String, primary_key=True),
    Column("preferences", LargeBinary, nullable=False),
)

#: notifications that are not sent yet (msgpack of db.notifications.Notice)
notices = Table(
    "notices",
    metadata,
    Column("key", String, primary_key=True),
    Column("at", Float, nullable=False),
    Column("notice", LargeBinary, nullable=False),
)


# ------------------------------------------------------------------------------- lineage and reuse
#: what a run was: code, inputs, environment (msgpack of protocol.lineage.RunFacts)
run_facts = Table(
    "run_facts", metadata, Column("run", String, primary_key=True), Column("facts", LargeBinary, nullable=False)
)

#: ``run`` used ``name``, which ``source`` had made
run_links = Table(
    "run_links",
    metadata,
    Column("run", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("source", String, nullable=False),
    Index("run_links_by_source", "source"),
)

#: runs whose results may be used again
cache_keys = Table(
    "cache_keys",
    metadata,
    Column("run", String, primary_key=True),
    Column("user", String, nullable=False),
    Column("key", String, nullable=False),
    #: digest of the nodes' packages at that time
    Column("environment", String, nullable=False),
    Column("finished_at", Float, nullable=False),
    Column("marks", LargeBinary, nullable=False),
    Index("cache_keys_by_key", "user", "key"),
)

#: when results were used again instead of running the cell
cache_uses = Table(
    "cache_uses",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("notebook", String, nullable=False),
    Column("cell", String, nullable=False),
    Index("cache_uses_by_run", "run"),
)
