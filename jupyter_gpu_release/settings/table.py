"""The table of settings: flags, environment variables, YAML files, traitlets, and numbers that are built in.

Parsers, defaults, ``--help`` and ``docs/settings.md`` are made from it.
"""

from __future__ import annotations

import msgspec

from .built_in import BUILT_IN
from .flags import COMMANDS
from .setting import Setting, Unit

_MINUTE_S, _HOUR_S = 60.0, 3600.0
_SECONDS, _BYTES, _COUNT, _NUMBER = Unit.SECONDS, Unit.BYTES, Unit.COUNT, Unit.NUMBER
#: field of :class:`.GatewayConfig` → setting that ``jupyter gpu start`` reads
CLUSTER: dict[str, Setting] = {
    "preload": Setting(
        help="Libraries that are imported before cells come, such as `torch,numpy`.",
        default=[],
        unit=Unit.LIST,
        otherwise="the usual libraries that are installed",
        pattern=r"[^\W\d]\w*(?:\.[^\W\d]\w*)*",
        noun="the name of a module",
        example="torch,numpy,pandas",
        variable="JUPYTER_GPU_PRELOAD",
    ),
    "max_prepared": Setting(
        help="Fork servers that a node keeps with what users' cells import beyond the usual libraries. `0`: none.",
        default=4,
        unit=_COUNT,
        most=64,
        noun="a number",
        example="4",
        variable="JUPYTER_GPU_MAX_PREPARED",
    ),
    "environments": Setting(
        help="Folder on a local disk of each node for environments with packages that notebooks have beside the "
        "cluster's.",
        otherwise="`/var/tmp/jupyter-gpu-environments-<uid>`",
        pattern="/.*",
        noun="an absolute path",
        example="/scratch/environments",
        variable="JUPYTER_GPU_ENVIRONMENTS",
    ),
    "environment_index": Setting(
        help="Index that nodes take packages from: its address, without a password, or `none`. Passwords belong into "
        "the `netrc` of the user that the nodes' processes run as.",
        otherwise="as the variables `UV_…` of the nodes' processes say, else PyPI",
        pattern=r"none|https?://[^@\s]+",
        noun="an http(s) address without a password, or none",
        example="https://pypi.example.org/simple",
        variable="JUPYTER_GPU_ENVIRONMENT_INDEX",
    ),
    "environment_wheels": Setting(
        help="Folders of wheels that all nodes see; packages are taken from there, too.",
        default=[],
        unit=Unit.LIST,
        otherwise="none",
        pattern=r"/.+",
        noun="an absolute path",
        example="/shared/wheels",
        variable="JUPYTER_GPU_ENVIRONMENT_WHEELS",
    ),
    "environment_source_builds": Setting(
        help="Whether packages without a wheel are built from their source, as the user that the node agents run as: "
        "what a package says for its build runs there. A node agent that is root never does.",
        default="never",
        choices=("never", "allowed"),
        example="allowed",
        variable="JUPYTER_GPU_ENVIRONMENT_SOURCE_BUILDS",
    ),
    "environment_owned": Setting(
        help="Further packages that cells always get from the cluster, whatever the notebook has, such as `acme-*`.",
        default=[],
        unit=Unit.LIST,
        otherwise="the GPU libraries, and what this package needs",
        pattern=r"[A-Za-z0-9][A-Za-z0-9._*-]*",
        noun="the name of a package, or a pattern",
        example="flash-attn,acme-*",
        variable="JUPYTER_GPU_ENVIRONMENT_OWNED",
    ),
    "named_environments": Setting(
        help="File with environments that you name for `--environment NAME`, as the gateway sees it.",
        default="",
        otherwise="none",
        pattern=r"/.+",
        noun="an absolute path",
        example="/etc/jupyter-gpu/environments.yaml",
        variable="JUPYTER_GPU_NAMED_ENVIRONMENTS",
    ),
    "environment_timeout_s": Setting(
        help="Longest time for which a node builds an environment. No GPU is held meanwhile.",
        default=600.0,
        unit=_SECONDS,
        least=1.0,
        noun="a number of seconds",
        example="10m",
        variable="JUPYTER_GPU_ENVIRONMENT_TIMEOUT",
    ),
    "environment_retention_s": Setting(
        help="Time after its last use when a node removes an environment.",
        default=14 * 24 * _HOUR_S,
        unit=_SECONDS,
        least=60.0,
        noun="a number of seconds",
        example="14d",
        variable="JUPYTER_GPU_ENVIRONMENT_RETENTION",
    ),
    "max_environments": Setting(
        help="Environments of which a node keeps a fork server. `0`: no cell has packages beside the cluster's.",
        default=4,
        unit=_COUNT,
        most=64,
        noun="a number",
        example="4",
        variable="JUPYTER_GPU_MAX_ENVIRONMENTS",
    ),
    "reconnect_grace_s": Setting(
        help="Grace of a kernel: its runs wait for so long after its connection was closed. Then they end.",
        default=30.0,
        unit=_SECONDS,
        example="30",
        variable="JUPYTER_GPU_RECONNECT_GRACE_S",
    ),
    "node_grace_s": Setting(
        help="Grace of a node: the cells on a node that does not answer for longer are `lost`.",
        default=60.0,
        unit=_SECONDS,
        example="60s",
        variable="JUPYTER_GPU_NODE_GRACE",
    ),
    "max_keep_s": Setting(
        help="Longest time for which a cell may keep its GPUs for the next one (`--keep`). `0`: not at all.",
        default=600.0,
        unit=_SECONDS,
        example="10m",
        variable="JUPYTER_GPU_MAX_KEEP",
    ),
    "gc_interval_s": Setting(
        help="Time between two removals of old results. Nothing is removed without one of the three limits.",
        default=_HOUR_S,
        unit=_SECONDS,
        least=10.0,
        example="1h",
        variable="JUPYTER_GPU_GC_EVERY",
    ),
    "allowed_hosts": Setting(
        help="Further names under which the gateway is reached, such as `gpu.example.org` of a proxy.",
        default=[],
        unit=Unit.LIST,
        otherwise="none",
        pattern=r"[A-Za-z0-9._-]+|[0-9A-Fa-f:]+",
        noun="the name of a host",
        example="gpu.example.org, without http:// and port",
        variable="JUPYTER_GPU_ALLOWED_HOSTS",
    ),
    "user_requests_per_s": Setting(
        help="Requests a second that one user may send in the long run, and as many messages of kernels. Ten seconds' "
        "worth may come at once.",
        default=200.0,
        unit=_NUMBER,
        least=1.0,
        example="200",
        variable="JUPYTER_GPU_USER_RATE",
    ),
    "spool": Setting(
        help="Folder on a local disk of each node for results that cannot be written to the store yet.",
        otherwise="`spool` below JUPYTER_GPU_HOME; on a Ray cluster that runs already `/var/tmp/jupyter-gpu-<uid>`",
        pattern="/.*",
        noun="an absolute path",
        example="/var/tmp/spool",
        variable="JUPYTER_GPU_SPOOL",
    ),
    "persist_memory_bytes": Setting(
        help="Memory of each node that results may take while they wait to be written, such as `8GiB`.",
        default=0,
        unit=_BYTES,
        otherwise="a quarter of the node's",
        example="8GiB",
        variable="JUPYTER_GPU_PERSIST_MEMORY",
    ),
    "persist_bytes_per_s": Setting(
        help="Speed at which the results of one run are written at most, in bytes a second, such as `200MB`.",
        default=0,
        unit=_BYTES,
        otherwise="no limit",
        example="200MB",
        variable="JUPYTER_GPU_PERSIST_RATE",
    ),
    "free_attempts": Setting(
        help="Unknown tokens that an address may show before it has to wait: 1 s, then 2, up to 60 s.",
        default=20,
        unit=_COUNT,
        fixed="a person mistypes less often, and a program that guesses needs millions",
    ),
    "reconcile_interval_s": Setting(
        help="Time between two comparisons of ledger, Ray and agents.",
        default=3.0,
        unit=_SECONDS,
        fixed="the limits on how long a GPU stays with nobody are reckoned with it",
    ),
    "idle_agent_s": Setting(
        help="Where Ray ends idle nodes: a node without a lease has no agent after this time, and Ray may end it.",
        default=60.0,
        unit=_SECONDS,
        fixed="Ray's own `idle_timeout_minutes` comes on top, and is the one to set",
    ),
    "ready_timeout_s": Setting(
        help="Time that the first node agent has at the start.",
        default=90.0,
        unit=_SECONDS,
        fixed="what takes longer is a fault, which the error names",
    ),
}

#: field of :class:`.RetentionPolicy` → limit of what the gateway keeps by itself
RETENTION: dict[str, Setting] = {
    "older_than_s": Setting(
        help="Results that nobody used for longer are removed.",
        default=0.0,
        unit=_SECONDS,
        otherwise="no limit",
        example="30d",
        variable="JUPYTER_GPU_GC_OLDER_THAN",
    ),
    "keep": Setting(
        help="Runs of one user's notebook whose results stay, newest first.",
        default=0,
        unit=_COUNT,
        otherwise="no limit",
        noun="a number of runs",
        example="20, or 0 for no limit",
        variable="JUPYTER_GPU_GC_KEEP",
    ),
    "quota_bytes": Setting(
        help="Bytes of results on the store for each user. The least recently used go first.",
        default=0,
        unit=_BYTES,
        otherwise="no limit",
        example="50GiB",
        variable="JUPYTER_GPU_GC_QUOTA",
    ),
}

#: further variables, by what they name
VARIABLES: dict[str, Setting] = {
    "token": Setting(
        help="Token for the gateway. Wins over `c.GpuRelease.token_file`.",
        otherwise="the token file's",
        variable="JUPYTER_GPU_TOKEN",
    ),
    "home": Setting(
        help="Folder for the state of this machine's own cluster.",
        default="~/.local/state/jupyter-gpu",
        variable="JUPYTER_GPU_HOME",
    ),
    "runtime": Setting(
        help="Folder for sockets and Ray's own files while a cluster runs. Keep it short: paths of sockets end at 107 "
        "bytes. Read at `start`.",
        default="/tmp",
        variable="JUPYTER_GPU_RUNTIME",
    ),
    "environment": Setting(
        help="Further variables for the cluster's processes and all cells, such as `DATA_ROOT,WANDB_*`. Read at "
        "`start`.",
        otherwise="none",
        variable="JUPYTER_GPU_ENVIRONMENT",
    ),
    "store_mode": Setting(
        help="Users on the store: `single` (one for all), `group` (people who share a group), `owner` (each run as its "
        "owner). Read at `start`.",
        default="single",
        choices=("single", "group", "owner"),
        example="group",
        variable="JUPYTER_GPU_STORE_MODE",
    ),
    "store_group": Setting(
        help="Group of a store with the mode `group`: name or number. Read at `start`.",
        otherwise="none",
        variable="JUPYTER_GPU_STORE_GROUP",
    ),
    "unix_users": Setting(
        help="YAML file: each user's account and limits. Read at `start`.",
        otherwise="accounts of the users' own names",
        variable="JUPYTER_GPU_UNIX_USERS",
    ),
    "service_user": Setting(
        help="For kernels and scripts: the user that a shared store's cluster runs as, where no gateway says it.",
        otherwise="what the gateway says",
        variable="JUPYTER_GPU_SERVICE_USER",
    ),
    "notify": Setting(
        help="YAML file about mails and webhooks. Read at `start`.",
        otherwise="nobody is told",
        variable="JUPYTER_GPU_NOTIFY",
    ),
    "smtp_password": Setting(
        help="Password of the mail server. Read at `start`, and kept in a 0600 file.",
        otherwise="the file that `password_file:` names",
        variable="JUPYTER_GPU_SMTP_PASSWORD",
    ),
    "image": Setting(
        help="On a node: name of the container image that it runs, for the lineage of its runs.",
        otherwise="none",
        variable="JUPYTER_GPU_IMAGE",
    ),
    "pod_head": Setting(
        help="In a pod of the Helm chart, which sets it: host and port of the head's service, for `doctor`.",
        otherwise="none",
        variable="JUPYTER_GPU_POD_HEAD",
    ),
}

#: trait of ``c.GpuRelease`` → setting, for kernels, scripts and the Jupyter server
RELEASE: dict[str, Setting] = {
    "url": Setting(
        help="Address of the team's gateway, such as https://gpu.example.org:8765. Empty: this machine's own cluster. "
        "JUPYTER_GPU_URL wins.",
        otherwise="this machine's own cluster",
        variable="JUPYTER_GPU_URL",
    ),
    "token_file": Setting(
        help="File (mode 0600) with your token for the gateway. Empty: the one of this machine's own cluster. A "
        "Jupyter server keeps it from browsers. JUPYTER_GPU_TOKEN and JUPYTER_GPU_TOKEN_FILE win.",
        otherwise="this machine's own cluster's",
        variable="JUPYTER_GPU_TOKEN_FILE",
    ),
    "ca_file": Setting(
        help="PEM file with the authorities that may have signed the certificate of the team's gateway, besides those "
        "that this machine trusts. JUPYTER_GPU_CA_FILE wins.",
        otherwise="those of this machine",
        variable="JUPYTER_GPU_CA_FILE",
    ),
    "store": Setting(
        help="Root of the shared filesystem as this machine sees it. Empty: the path that the gateway names. "
        "JUPYTER_GPU_STORE wins.",
        otherwise="the path that the gateway names",
        variable="JUPYTER_GPU_STORE",
    ),
    "auto_start": Setting(
        help="What to do when no gateway is configured and none runs on this machine. `local`: a GPU cell, or the "
        "sidebar's button, starts this machine's own cluster (it goes on until `jupyter gpu stop`). `never`: refuse. A "
        "gateway that is configured but down is never replaced by the local one.",
        default="local",
        choices=("local", "never"),
    ),
    "start_options": Setting(
        help="Options of `jupyter gpu start` for that start, such as ['--simulated-gpus', '2'].",
        default=(),
        unit=Unit.LIST,
        otherwise="none",
    ),
    "defaults": Setting(
        help="Default options of %%gpu_train, by name: {'gpus': 2, 'memory': '8GiB', 'env': ['A=1', 'B=2']}. "
        "%gpu_config and the cell's own options win.",
        default={},
        otherwise="none",
    ),
    "implicit_send_max": Setting(
        help="How much of the notebook goes along with a cell that looks names up by a text which is known only when "
        "it runs (`eval(text)`, `globals()[name]`), beside the names that it is seen to read. The rest is fetched when "
        "the cell asks for it.",
        default="64MiB",
    ),
    "automatic": Setting(
        help="Whether Jupyter kernels load the magics when they start, without %load_ext. Read from IPython's own "
        "configuration, and by the Jupyter server for the kernels that it starts; JUPYTER_GPU_AUTOMATIC=0 switches it "
        "off, too.",
        default=True,
        unit=Unit.YES,
        variable="JUPYTER_GPU_AUTOMATIC",
    ),
    "user_tokens": Setting(
        help="For a Jupyter server with several users: folder of token files (mode 0600). The file named like a "
        "user of Jupyter holds the token with which the gateway is asked in that user's name. Who has none there sees "
        "and does nothing on the cluster through this server. Empty: everybody who may use this server speaks with "
        "its own token.",
        otherwise="the server's own token for all",
    ),
    "poll_interval": Setting(
        help="For the Jupyter server: seconds after which figures of what is held are asked for anew. Changes are told "
        "at once. A gateway that cannot tell them is asked this often.",
        default=2.0,
        unit=_SECONDS,
        least=0.2,
    ),
    "max_backoff": Setting(
        help="For the Jupyter server: seconds between two tries at most while the gateway does not answer (from 1 s, "
        "doubled).",
        default=60.0,
        unit=_SECONDS,
        least=1.0,
    ),
}

#: trait of ``c.GpuCuller`` → setting
CULLER: dict[str, Setting] = {
    "cull_idle_timeout": Setting(
        help="Seconds after which a kernel that holds GPU memory and does nothing is acted on (see `action`). "
        "0: never.",
        default=3600,
        unit=_SECONDS,
        least=0,
    ),
    "lease_idle_timeout": Setting(
        help="Seconds after which a warm lease that nothing runs on is acted on (see `lease_action`). 0: never.",
        default=300,
        unit=_SECONDS,
        least=0,
    ),
    "cull_interval": Setting(
        help="Seconds between two passes of the policy. A pass over 200 kernels takes milliseconds.",
        default=10.0,
        unit=_SECONDS,
        least=0.1,
    ),
    "sample_interval": Setting(
        help="Seconds between two looks at GPUs and processes.", default=2.0, unit=_SECONDS, least=0.1
    ),
    "samples": Setting(
        help="How many samples in a row must say idle before anything is done. One that does not starts over.",
        default=3,
        unit=_COUNT,
        least=1,
    ),
    "action": Setting(
        help="What is done about a kernel that is idle for too long: `notify` tells its user; `release` asks its GPU "
        "libraries to let go of memory they do not need; `suspend` moves its GPU memory into the host's (where the "
        "driver can: see the health answer); `shutdown` ends the kernel, its variables with it.",
        default="notify",
        choices=("notify", "release", "suspend", "shutdown"),
    ),
    "lease_action": Setting(
        help="What is done about a warm lease that is idle for too long.",
        default="release",
        choices=("notify", "release"),
    ),
    "warn_before": Setting(
        help="Seconds between the warning in JupyterLab (with its answer `keep`) and an action that changes something. "
        "Nothing is done without a warning unless this is 0.",
        default=300,
        unit=_SECONDS,
        least=0,
    ),
    "keep_time": Setting(
        help="Seconds that the answer `keep` to a warning lasts when it does not say so itself.",
        default=1800,
        unit=_SECONDS,
        least=1,
    ),
    "cull_connected": Setting(
        help="Whether a kernel that is open in a tab may be acted on. A tab left open is the commonest reason for a "
        "GPU that is held and not used. False: only kernels without tabs.",
        default=True,
        unit=Unit.YES,
    ),
    "min_utilization": Setting(
        help="Tell the user of a run whose GPUs were less busy than this share (0.05 is 5 %) over "
        "`utilization_window`. It is at work, so telling is all that is done. 0: never.",
        default=0.0,
        unit=_NUMBER,
        least=0.0,
        most=1.0,
    ),
    "utilization_window": Setting(
        help="Seconds over which `min_utilization` is measured.", default=1800, unit=_SECONDS, least=1
    ),
    "max_busy_time": Setting(
        help="Tell the user of a kernel that has been busy without a pause for so many seconds. 0: never.",
        default=0,
        unit=_SECONDS,
        least=0,
    ),
    "idle_gpu": Setting(
        help="A GPU that is busy for at most this share of the time is idle.",
        default=0.03,
        unit=_NUMBER,
        least=0.0,
        most=1.0,
    ),
    "idle_cpu": Setting(
        help="A kernel whose processes use at most so many CPU cores together is idle.",
        default=0.1,
        unit=_NUMBER,
        least=0.0,
    ),
    "unknown_utilization_is_busy": Setting(
        help="What a GPU that does not tell its utilization (MIG) means: True: its kernels count as busy and are "
        "never touched. False: messages, CPU and runs decide alone.",
        default=True,
        unit=Unit.YES,
    ),
    "protected": Setting(
        help="Who is never acted on: patterns such as 'path:production/*', 'user:ann', 'kernelspec:ir', 'queue:exam'.",
        default=(),
        unit=Unit.LIST,
        otherwise="nobody",
    ),
    "overrides": Setting(
        help="Other settings for some: [{'kernelspec': 'ir*', 'cull_idle_timeout': 7200}, {'path': 'exam/*', 'hours': "
        "'outside', 'action': 'shutdown'}]. Conditions: user, kernelspec, queue, path (patterns), hours ('business' or "
        "'outside'). All that match apply, the later ones win.",
        default=(),
        unit=Unit.LIST,
        otherwise="none",
    ),
    "business_hours": Setting(
        help="What `hours` in an override means, in this machine's local time: 'mon-fri 08:00-18:00, sat 09:00-12:00'.",
        default="mon-fri 08:00-18:00",
    ),
    "dry_run": Setting(help="Only say, log and count what would be done.", default=False, unit=Unit.YES),
    "save_before_shutdown": Setting(
        help="With the action `shutdown`: first save the kernel's variables to the store "
        "(`<store>/saved/<kernel>.pkl`, mode 0600; read them with pickle.load). A kernel that cannot be saved "
        "is not shut down.",
        default=True,
        unit=Unit.YES,
    ),
    "move_to_host": Setting(
        help="Names of variables (patterns) whose tensors and models `release` may move to the host's memory. Empty: "
        "only memory that nothing refers to is let go, and variables stay as they are.",
        default=(),
        unit=Unit.LIST,
        otherwise="none",
    ),
    "users": Setting(
        help="Whose leases on the cluster this server looks after. Empty: those of the user whose token it has.",
        default=(),
        unit=Unit.LIST,
        otherwise="the token's user",
    ),
    "device_files": Setting(
        help="Where process ids are not the driver's own (containers), a process counts as the holder of GPU memory "
        "only if it has a file open whose path begins like one of these.",
        default=("/dev/nvidia", "/dev/dxg"),
        unit=Unit.LIST,
    ),
    "audit_log": Setting(
        help="File to which every action is appended as a line of JSON (mode 0600). Empty: the server's log only.",
        otherwise="the server's log",
    ),
}

#: field of a queue in the queues file → setting
QUEUE: dict[str, Setting] = {
    "guaranteed": Setting(
        help="GPUs that it is due before others get more; a number, or one for each type.", default=0, unit=_NUMBER
    ),
    "max": Setting(
        help="Most GPUs that it may have; a number, or one for each type.",
        default=None,
        unit=_NUMBER,
        otherwise="no limit",
    ),
    "weight": Setting(
        help="Its part of what is left over.", default=1.0, unit=_NUMBER, most=1e6, example="a number from 0 to 1e+06"
    ),
    "priority": Setting(help="Queues of a higher number get of what is left over first.", default=0, unit=_COUNT),
    "users": Setting(help="Names, and groups as `@name`.", default=None, unit=Unit.LIST, otherwise="everybody"),
    "priority_ceiling": Setting(
        help="Highest `--priority` of its runs: `low` (25), `normal` (50), `high` (75) or a number.", default="high"
    ),
    "min_runtime": Setting(help="Time after its start in which no run of it is preempted.", default=0.0, unit=_SECONDS),
    "grace": Setting(
        help="Time from the notice that a run is preempted to its end; it is saved until then.",
        default=60.0,
        unit=_SECONDS,
    ),
    "restartable": Setting(
        help="`default`: its cells are restartable where they can be, unless they say `--restartable=off`.",
        default="asked",
        choices=("asked", "default"),
    ),
    "max_timeout": Setting(help="Longest `--timeout` of its runs.", default=None, unit=_SECONDS, otherwise="no limit"),
    "max_keep": Setting(help="Longest `--keep` of its cells.", default=None, unit=_SECONDS, otherwise="the cluster's"),
    "max_gpus_per_user": Setting(
        help="Most GPUs that one user may have in it.", default=None, unit=_NUMBER, otherwise="no limit"
    ),
    "max_runs_per_user": Setting(
        help="Most runs of one user that wait in it or are under way.", default=None, unit=_COUNT, otherwise="no limit"
    ),
}

#: field of ``policy`` in the queues file → setting
POLICY: dict[str, Setting] = {
    "actions": Setting(
        help="Actions of a pass, in this order.",
        default=("allocate", "backfill", "consolidate", "reclaim", "preempt"),
        unit=Unit.LIST,
    ),
    "queue_order": Setting(
        help="By what the next queue is chosen.", default=("priority", "fair_share"), unit=Unit.LIST
    ),
    "run_order": Setting(
        help="By what the next run in it is chosen.",
        default=("priority", "user_share", "wait_over_expected_work", "age"),
        unit=Unit.LIST,
    ),
    "non_restartable_over_guarantee": Setting(
        help="Whether runs that cannot be preempted may use more than their queue's guarantee.",
        default=True,
        unit=Unit.YES,
    ),
    "usage_half_life": Setting(
        help="After this time half of what a user had is forgotten.",
        default="7d",
        unit=_SECONDS,
        otherwise="7 d",
        least=_MINUTE_S,
    ),
    "max_overtaking": Setting(
        help="A run that waited so long goes first; `x20`: so many times its expected time.",
        default=None,
        otherwise="the bounds of the order",
    ),
    "card_tiers": Setting(
        help="Types of GPU that runs of high and of low priority prefer.", default={}, otherwise="none"
    ),
}

#: field of ``notify:`` in the file that ``JUPYTER_GPU_NOTIFY`` names → setting
NOTIFY: dict[str, Setting] = {
    "waited": Setting(
        help="A run that had to wait for less is not told of when it starts.", default=60.0, unit=_SECONDS
    ),
    "link": Setting(help="Address of a run's page; `{run}` stands for its id.", otherwise="none"),
    "mail.host": Setting(help="Mail server.", otherwise="no mail"),
    "mail.sender": Setting(help="Address that mails come from.", otherwise="no mail"),
    "mail.port": Setting(help="Port of the mail server.", default=587, unit=_COUNT, least=1, most=65535),
    "mail.tls": Setting(
        help="`starttls`, `tls` from the first byte, or `none`.",
        default="starttls",
        choices=("starttls", "tls", "none"),
    ),
    "mail.user": Setting(help="Name to log in with.", otherwise="no login"),
    "mail.password_file": Setting(help="File with the password (0600).", otherwise="JUPYTER_GPU_SMTP_PASSWORD"),
    "mail.domains": Setting(
        help="Domains of the addresses that users may name; `*`: any.",
        default=(),
        unit=Unit.LIST,
        otherwise="the sender's",
    ),
    "webhooks.hosts": Setting(
        help="Hosts that users' webhooks may be on, each `name` or `name:port`.",
        default=(),
        unit=Unit.LIST,
        otherwise="no webhooks",
    ),
    "webhooks.private_addresses": Setting(
        help="Also addresses of the inner network and of this machine.", default=False, unit=Unit.YES
    ),
    "webhooks.plain_http": Setting(help="Also `http://`.", default=False, unit=Unit.YES),
    "webhooks.proxy": Setting(
        help="`http://host:port` that asks on the gateway's behalf; it decides about addresses then.", otherwise="none"
    ),
}

#: argument of ``hand_out_tokens`` in ``jupyterhub_config.py`` → setting
HUB: dict[str, Setting] = {
    "lifetime": Setting(
        help="Time for which a token is good. It is renewed after half of that.",
        default="12h",
        unit=_SECONDS,
        otherwise="12 h",
        least=10.0,
        variable="JUPYTER_GPU_HUB_LIFETIME_S",
    ),
    "url": Setting(help="Address at which servers reach the service.", default="http://127.0.0.1:8780"),
    "ca_file": Setting(
        help="PEM file with the authorities that may have signed the gateway's certificate.", otherwise="the machine's"
    ),
    "allow_plain_text": Setting(
        help="Plain text beyond this machine: in a network that you trust.", default=False, unit=Unit.YES
    ),
}


class Section(msgspec.Struct, frozen=True):
    """Settings that are written in one place. ``form``: how a name is written there."""

    title: str
    text: str
    form: str
    settings: dict[str, Setting]


SECTIONS: tuple[Section, ...] = (
    *(
        Section(f"jupyter gpu {name}", "Flags of the command line.", "--{}", COMMANDS[name].flags)
        for name in ("start", "gc", "runs", "token create", "simulate")
    ),
    Section("The cluster", "Environment variables that `jupyter gpu start` reads.", "", CLUSTER),
    Section(
        "Removal of old results",
        "Environment variables that `jupyter gpu start` reads: what the gateway removes by itself.",
        "",
        RETENTION,
    ),
    Section("Further environment variables", "", "", VARIABLES),
    Section(
        "Notebooks, scripts and the Jupyter server",
        "`c.GpuRelease.…` in `jupyter_gpu_release_config.py`. A variable wins over the file.",
        "c.GpuRelease.{}",
        RELEASE,
    ),
    Section("The idle policy", "`c.GpuCuller.…` in `jupyter_server_config.py`.", "c.GpuCuller.{}", CULLER),
    Section("Queues", "Fields of a queue in the file of `start --queues`.", "{}:", QUEUE),
    Section("Policy of the queues", "Fields below `policy:` in the same file.", "{}:", POLICY),
    Section("Mails and webhooks", "Fields below `notify:` in the file that JUPYTER_GPU_NOTIFY names.", "{}:", NOTIFY),
    Section("JupyterHub", "Arguments of `hand_out_tokens`.", "{}=", HUB),
    Section("Built in", "Numbers that nobody can change, and why.", "", BUILT_IN),
)
