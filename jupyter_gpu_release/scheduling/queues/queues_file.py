"""The queues file: queues, groups and policy written in YAML, read with the line of every mistake."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from ...errors import OptionError
from ...settings.table import POLICY, QUEUE
from ...settings.yaml_document import YamlDocument, meant
from ...units import parse_seconds
from ..workload import GPU, MOST_PARTS, Node
from .gpu_types import key as type_key
from .prices import Prices
from .tree import ACTIONS, DEFAULT_QUEUE, QUEUE_ORDER, RUN_ORDER, SHARED_QUEUE, UNLIMITED, Policy, Queue, QueueTree

PRIORITIES = {"low": 25, "normal": 50, "high": 75}


class _Spec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    pass


class QueueSpec(_Spec, frozen=True):
    """A queue as written."""

    name: str
    parent: str | None = None
    guaranteed: float | dict[str, float] = QUEUE["guaranteed"].default
    max: float | dict[str, float] | None = None
    weight: float = QUEUE["weight"].default
    priority: int = QUEUE["priority"].default
    users: list[str] | None = None
    priority_ceiling: int | str = QUEUE["priority_ceiling"].default
    min_runtime: float | str = QUEUE["min_runtime"].default
    grace: float | str = QUEUE["grace"].default
    restartable: Literal["asked", "default"] = QUEUE["restartable"].default
    max_timeout: float | str | None = None
    max_keep: float | str | None = None
    max_gpus_per_user: float | None = None
    max_runs_per_user: int | None = None


class PolicySpec(_Spec, frozen=True):
    """The policy as written."""

    actions: tuple[str, ...] | None = None
    queue_order: tuple[str, ...] = QUEUE_ORDER
    run_order: tuple[str, ...] = RUN_ORDER
    non_restartable_over_guarantee: bool = POLICY["non_restartable_over_guarantee"].default
    usage_half_life: float | str = POLICY["usage_half_life"].default
    max_overtaking: float | str | None = None
    gpu_tiers: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="card_tiers")


class SharingSpec(_Spec, frozen=True):
    """Sharing of GPUs as written."""

    mode: Literal["none", "shared"] = "shared"
    users: list[str] | None = None
    types: list[str] | None = None
    at_most: int = MOST_PARTS


class _FileSpec(_Spec, frozen=True):
    schema_version: int
    queues: list[QueueSpec] = []
    groups: dict[str, list[str]] = {}
    default_queue: str | dict[str, str] | None = None
    assistant_queue: str = ""
    policy: PolicySpec = PolicySpec()
    rates: dict[str, float] = {}
    rate_unit: str = ""
    warn_above: float | None = None
    gpu_sharing: SharingSpec = SharingSpec()


@dataclass(frozen=True)
class Sharing:
    """Rules for parts of GPUs: ``most`` runs share one (0: none do), of these types and users (None: all)."""

    most: int = MOST_PARTS
    types: tuple[str, ...] | None = None
    users: tuple[str, ...] | None = None

    @property
    def least(self) -> float:
        """The smallest part of a GPU, in hundredths."""
        return math.ceil(100 / self.most) / 100

    def parts_of(self, node: Node) -> int:
        """Runs that may share a GPU of a node."""
        is_one = self.types is None or any(type_key(kind) in type_key(node.gpu_type) for kind in self.types)
        return self.most if is_one else 0


@dataclass(frozen=True)
class QueuesFile:
    """Contents of a queues file. Without a file there is one queue, and users share it."""

    tree: QueueTree = field(default_factory=lambda: QueueTree([SHARED_QUEUE]))
    policy: Policy = field(default_factory=Policy)
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: user (or ``*``) → queue
    default_queue: Mapping[str, str] = field(default_factory=lambda: {"*": DEFAULT_QUEUE})
    prices: Prices = field(default_factory=Prices)
    sharing: Sharing = field(default_factory=Sharing)
    #: where runs of assistants' tokens go; empty: where their user's go
    assistant_queue: str = ""

    def shared(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """The nodes, whose GPUs are shared by as many runs as may."""
        return tuple(replace(node, parts_per_gpu=self.sharing.parts_of(node)) for node in nodes)

    def check_sharing(self, user: str, what: str, part: float = 1) -> None:
        """Raise :class:`OptionError` where a user may have no parts of GPUs, or none as small as this one.

        ``what`` asks for it. Ray fills a GPU up, so by their size alone no more share one than may.
        """
        users = self.sharing.users
        if not self.sharing.most:
            raise OptionError(f"{what}: GPUs of this cluster are not shared", hint="ask for whole GPUs: --gpus 1")
        if users is not None and not self._is_among(user, users):
            raise OptionError(f"{what}: you may not share GPUs", hint="ask for whole GPUs: --gpus 1")
        if part < self.sharing.least:
            why = f"at most {self.sharing.most} runs share a GPU"
            raise OptionError(f"{what}: {why}", hint=f"ask for --gpus {self.sharing.least:g} or more")

    def queues_of(self, user: str) -> list[str]:
        """The queues that a user may use."""
        return [name for name in self.tree.leaves() if self.may_use(user, name)]

    def may_use(self, user: str, queue: str) -> bool:
        """Tell if a user may use a queue: each list of users on the way to the top has to name them."""
        lists = [self.tree.queues[name].users for name in self.tree.paths[queue]]
        return all(users is None or self._is_among(user, users) for users in lists)

    def _is_among(self, user: str, users: Sequence[str]) -> bool:
        return any(user == name or (name[:1] == "@" and user in self.groups[name[1:]]) for name in users)

    def queue_for(self, user: str, asked: str | None = None) -> str:
        """The queue of a user's run; raises :class:`OptionError` with the list of what the user may use."""
        own = self.queues_of(user)
        hint = f"you may use: {', '.join(own)}" if own else "no queue names you; ask whoever runs the cluster"
        name = asked or self.default_queue.get(user) or self.default_queue.get("*") or (own[0] if own else "")
        if name in own:
            return name
        if not asked:
            raise OptionError(f"--queue: {user} has no default queue", hint=hint)
        raise OptionError(f"--queue {name}: {self._unusable(name)}", hint=hint)

    def queue_of_assistants(self, asked: str) -> str:
        """The queue of an assistant's run that asks for ``asked``; raises :class:`OptionError` for another."""
        if self.assistant_queue and asked not in ("", self.assistant_queue):
            hint = "leave --queue out"
            raise OptionError(f"--queue {asked}: runs of assistants go to queue {self.assistant_queue}", hint=hint)
        return self.assistant_queue or asked

    def _unusable(self, name: str) -> str:
        if name not in self.tree.queues:
            return "there is no such queue"
        below = [queue for queue in self.tree.leaves() if name in self.tree.paths[queue]]
        return "you may not use it" if name in below else f"runs go to the queues below it ({', '.join(below)})"

    def settle(self, queue: str, user: str) -> str:
        """The queue itself; where it is gone, that of the user's other runs, else one that takes theirs, or any."""
        leaves = self.tree.leaves()
        if queue in leaves:
            return queue
        try:
            return self.queue_for(user)
        except OptionError:
            return next(iter(self.queues_of(user)), leaves[0])

    def ceiling(self, queue: str) -> int:
        """The highest ``--priority`` of a queue."""
        return min(self.tree.queues[name].priority_ceiling for name in self.tree.paths[queue])

    def priority_for(self, queue: str, asked: str | int) -> int:
        """The value of ``--priority``; raises :class:`OptionError` above the queue's ceiling."""
        value = priority_value(asked, "--priority")
        ceiling = self.ceiling(queue)
        if value > ceiling:
            words = [word for word, number in PRIORITIES.items() if number <= ceiling]
            raise OptionError(
                f"--priority {asked}: queue {queue} allows at most {ceiling}",
                hint=f"write one of {', '.join(words)}, or a number up to {ceiling}" if words else f"at most {ceiling}",
            )
        return value


def priority_value(asked: str | int, option: str) -> int:
    """``high → 75``; a number stays one."""
    text = str(asked)
    if text in PRIORITIES:
        return PRIORITIES[text]
    if not re.fullmatch(r"-?[0-9]{1,6}", text):
        raise OptionError(f"{option} {text}: not a priority", hint=f"write one of {', '.join(PRIORITIES)}, or a number")
    return int(text)


def parse_queues(text: str, name: str) -> QueuesFile:
    """Read the text of a queues file; ``name`` is that of the file. Raises :class:`OptionError` with the line."""
    document = YamlDocument(text, name, "`jupyter gpu docs scheduling/queues-file`")
    spec = document.convert(_FileSpec)
    if spec.schema_version != 1:
        raise document.error(f"schema_version {spec.schema_version}: this version reads 1", "schema_version")
    return _Reader(document).read(spec)


class _Reader:
    """Turns what is written into queues and rules; every refusal names the line."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document

    def read(self, spec: _FileSpec) -> QueuesFile:
        queues = [self._queue(queue, f"queues[{index}]") for index, queue in enumerate(spec.queues)]
        self._check_tree(queues)
        tree = QueueTree(queues or [SHARED_QUEUE])
        self._check_users(spec)
        defaults, sharing = self._defaults(spec, tree), self._sharing(spec)
        if spec.assistant_queue:
            self._check_leaf(spec.assistant_queue, tree.leaves(), "assistant_queue")
        policy = self._policy(spec.policy)
        return QueuesFile(tree, policy, spec.groups, defaults, self._prices(spec), sharing, spec.assistant_queue)

    def _sharing(self, spec: _FileSpec) -> Sharing:
        written = spec.gpu_sharing
        if not 2 <= written.at_most <= MOST_PARTS:
            message, hint = f"{written.at_most} runs cannot share a GPU", f"write 2 to {MOST_PARTS}, or mode: none"
            raise self._document.error(message, "gpu_sharing.at_most", hint=hint)
        self._check_names(written.users or [], spec.groups, "gpu_sharing.users")
        types, users = written.types, written.users
        most = written.at_most if written.mode == "shared" else 0
        return Sharing(most, None if types is None else tuple(types), None if users is None else tuple(users))

    def _prices(self, spec: _FileSpec) -> Prices:
        wrong = next((kind for kind, rate in spec.rates.items() if not 0 <= rate < math.inf), None)
        if wrong is not None:
            hint = "write the price of a GPU-hour, at least 0"
            raise self._document.error(f"{spec.rates[wrong]:g} is no price", f"rates.{wrong}", hint=hint)
        return Prices(spec.rates, spec.rate_unit, spec.warn_above)

    def _queue(self, spec: QueueSpec, path: str) -> Queue:
        try:
            return to_queue(spec)
        except OptionError as error:
            part = error.message.removeprefix(f"queue {spec.name}: ")
            raise self._document.error(part, f"{path}.{part.partition(':')[0].split()[0]}", hint=error.hint) from error

    def _check_tree(self, queues: Sequence[Queue]) -> None:
        names = [queue.name for queue in queues]
        for index, queue in enumerate(queues):
            if queue.name in names[:index]:
                raise self._document.error(f"there are two queues called {queue.name}", f"queues[{index}].name")
            if queue.parent and queue.parent not in names:
                hint = meant(queue.parent, names)
                raise self._document.error(f"there is no queue {queue.parent}", f"queues[{index}].parent", hint=hint)
        try:
            QueueTree(queues)
        except OptionError as error:
            index = names.index(error.message.removeprefix("queue ").partition(":")[0])
            raise self._document.error(error.message, f"queues[{index}].parent", hint=error.hint) from error

    def _check_users(self, spec: _FileSpec) -> None:
        for index, queue in enumerate(spec.queues):
            self._check_names(queue.users or [], spec.groups, f"queues[{index}].users")

    def _check_names(self, users: Sequence[str], groups: Collection[str], path: str) -> None:
        for at, user in enumerate(users):
            if user.startswith("@") and user[1:] not in groups:
                hint = meant(user[1:], groups)
                raise self._document.error(f"there is no group {user[1:]}", f"{path}[{at}]", hint=hint)

    def _defaults(self, spec: _FileSpec, tree: QueueTree) -> dict[str, str]:
        leaves = tree.leaves()
        written = spec.default_queue
        if written is None:
            return {"*": leaves[0]} if len(leaves) == 1 else {}
        found = written if isinstance(written, dict) else {"*": written}
        for user, queue in found.items():
            self._check_leaf(queue, leaves, f"default_queue.{user}" if isinstance(written, dict) else "default_queue")
        return dict(found)

    def _check_leaf(self, queue: str, leaves: Sequence[str], path: str) -> None:
        if queue not in leaves:
            message = f"there is no queue {queue} that takes runs"
            raise self._document.error(message, path, hint=meant(queue, leaves))

    def _policy(self, spec: PolicySpec) -> Policy:
        try:
            return to_policy(spec)
        except OptionError as error:
            part = error.message.partition(":")[0]
            raise self._document.error(error.message, f"policy.{part}", hint=error.hint) from error


def to_queue(spec: QueueSpec) -> Queue:
    """Check a queue as written; raises :class:`OptionError`."""
    place = f"queue {spec.name}"
    max_of, guaranteed_of = _by_type(spec.max, f"{place}: max"), _by_type(spec.guaranteed, f"{place}: guaranteed")
    most = None if spec.max is None or max_of else _total(spec.max, f"{place}: max")
    most = None if most == UNLIMITED else most
    guaranteed = _total(spec.guaranteed, f"{place}: guaranteed")
    above = [kind for kind, count in guaranteed_of if count > dict(max_of).get(kind, count)]
    if above or (most is not None and guaranteed > most):
        raise OptionError(f"{place}: guaranteed is more than max", hint="raise max, or lower guaranteed")
    if not QUEUE["weight"].allows(abs(spec.weight)):
        hint = f"write {QUEUE['weight'].form}"
        raise OptionError(f"{place}: weight: {spec.weight:g} is not a weight", hint=hint)
    per_user = spec.max_gpus_per_user
    longest_s = None if spec.max_timeout is None else seconds(spec.max_timeout, f"{place}: max_timeout")
    if spec.max_runs_per_user is not None and spec.max_runs_per_user < 1:
        raise OptionError(f"{place}: max_runs_per_user: at least 1", hint="leave max_runs_per_user out: no limit")
    if longest_s == 0:
        raise OptionError(f"{place}: max_timeout: 0 would let no run begin", hint="leave max_timeout out: no limit")
    return Queue(
        name=spec.name,
        parent=spec.parent or "",
        guaranteed=guaranteed,
        max=most,
        guaranteed_of=guaranteed_of,
        max_of=max_of,
        weight=spec.weight,
        priority=spec.priority,
        users=None if spec.users is None else tuple(spec.users),
        priority_ceiling=priority_value(spec.priority_ceiling, f"{place}: priority_ceiling"),
        min_runtime_s=seconds(spec.min_runtime, f"{place}: min_runtime"),
        grace_s=seconds(spec.grace, f"{place}: grace"),
        is_restartable=spec.restartable == "default",
        max_timeout_s=longest_s,
        max_keep_s=None if spec.max_keep is None else seconds(spec.max_keep, f"{place}: max_keep"),
        max_runs_per_user=spec.max_runs_per_user,
        max_gpus_per_user=None if per_user is None else thousandths(per_user, f"{place}: max_gpus_per_user"),
    )


def to_policy(spec: PolicySpec) -> Policy:
    """Check a policy as written; raises :class:`OptionError`."""
    for what, names, known in (
        ("actions", spec.actions or (), ACTIONS),
        ("queue_order", spec.queue_order, QUEUE_ORDER),
        ("run_order", spec.run_order, RUN_ORDER),
    ):
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise OptionError(f"{what}: there is no {unknown}", hint=f"{what}: {', '.join(known)}")
    written = spec.max_overtaking
    half_life_s = seconds(spec.usage_half_life, "usage_half_life")
    if not POLICY["usage_half_life"].allows(half_life_s):
        hint = "write at least 1m; so short a history counts for next to nothing"
        raise OptionError(f"usage_half_life: {spec.usage_half_life} is too short", hint=hint)
    factor = re.fullmatch(r"x([0-9]+(?:\.[0-9]+)?)", written) if isinstance(written, str) else None
    return Policy(
        actions=ACTIONS if spec.actions is None else spec.actions,
        queue_order=spec.queue_order,
        run_order=spec.run_order,
        non_restartable_over_guarantee=spec.non_restartable_over_guarantee,
        usage_half_life_s=half_life_s,
        gpu_tiers=spec.gpu_tiers,
        max_overtaking_s=None if factor or written is None else seconds(written, "max_overtaking"),
        max_overtaking_factor=float(factor[1]) if factor else None,
    )


def seconds(written: float | str, place: str) -> float:
    """Read a duration: a number of seconds, or ``5m``."""
    found = parse_seconds(written, option=f"{place}:") if isinstance(written, str) else float(written)
    if not 0 <= found < float("inf"):
        raise OptionError(f"{place}: {written} is not a duration", hint="write it like 30s, 10m or 2h")
    return found


def thousandths(count: float, place: str) -> int:
    """Read a number of GPUs."""
    if not 0 <= count < 1e6:
        raise OptionError(f"{place}: {count:g} GPUs", hint="write a number of at least 0")
    return round(count * GPU)


def _total(written: float | Mapping[str, float], place: str) -> int:
    if isinstance(written, Mapping):
        return sum(thousandths(count, place) for count in written.values())
    return UNLIMITED if written == UNLIMITED else thousandths(written, place)


def _by_type(written: float | Mapping[str, float] | None, place: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(written, Mapping):
        return ()
    for kind in written:
        if not type_key(kind):
            raise OptionError(f"{place}: {kind!r} is not a type of GPU", hint="write it like {h100: 4, a100: 4}")
    return tuple((kind, thousandths(count, place)) for kind, count in written.items())
