"""Queues files: what they say, and the line of every mistake."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from doc_blocks import block

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile, Sharing, parse_queues
from jupyter_gpu_release.scheduling.workload import GPU, Node

GOOD = """\
schema_version: 1
queues:
  - name: research
    guaranteed: 12
  - name: vision
    parent: research
    guaranteed: {h100: 4, a100: 4}
    max: 16
    weight: 2
    users: [ann, "@vision-team"]
    priority_ceiling: normal
    min_runtime: 5m
    max_timeout: 24h
  - name: text
    parent: research
  - name: students
    users: [eve]
groups: {vision-team: [bob]}
default_queue: {eve: students, "*": text}
policy:
  actions: [allocate, backfill]
  card_tiers: {high: [h100], low: [v100, a100]}
rates: {h100: 2.5, "*": 1.0}
"""


def test_it_says_who_may_use_what() -> None:
    file = parse_queues(GOOD, "queues.yaml")
    assert (file.queues_of("ann"), file.queues_of("bob"), file.queues_of("eve")) == (
        ["vision", "text"],
        ["vision", "text"],
        ["text", "students"],
    )
    assert (file.queue_for("ann"), file.queue_for("eve"), file.queue_for("bob", "vision")) == (
        "text",
        "students",
        "vision",
    )
    vision = file.tree.queues["vision"]
    assert (vision.guaranteed, vision.max, vision.min_runtime_s, vision.max_timeout_s) == (
        8 * GPU,
        16 * GPU,
        300,
        86400,
    )
    assert file.policy.actions == ("allocate", "backfill")
    assert file.prices.rates["h100"] == 2.5


@pytest.mark.parametrize(
    ("user", "asked", "message"),
    [
        ("eve", "vision", "--queue vision: you may not use it"),
        ("eve", "research", "--queue research: runs go to the queues below it (vision, text)"),
        ("eve", "visoin", "--queue visoin: there is no such queue"),
    ],
)
def test_other_queues_are_refused_with_the_list_of_ones_own(user: str, asked: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_queues(GOOD, "queues.yaml").queue_for(user, asked)
    assert message in caught.value.message
    assert caught.value.hint == "you may use: text, students"


def test_a_priority_goes_up_to_the_ceiling() -> None:
    file = parse_queues(GOOD, "queues.yaml")
    assert [file.priority_for("vision", asked) for asked in ("low", "normal", 10)] == [25, 50, 10]
    assert file.priority_for("text", "high") == 75
    with pytest.raises(OptionError, match="--priority high: queue vision allows at most 50"):
        file.priority_for("vision", "high")


def test_without_a_file_all_users_share_one_queue() -> None:
    file = QueuesFile()
    assert (file.queues_of("ann"), file.queue_for("ann")) == (["default"], "default")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    max: 16",
            "    max: many",
            "queues.yaml, line 8: queues[1].max: expected a number or a table or nothing, it is a text",
        ),
        ("    max: 16", "    max: 4", "queues.yaml, line 7: queues[1].guaranteed: guaranteed is more than max"),
        ("    max: 16", "    maxx: 16", "queues.yaml, line 8: queues[1].maxx: there is no such field"),
        ("    max: 16", "    max: 16\n    max: 17", "queues.yaml, line 9: queues[1].max: max stands there twice"),
        ("    max: 16", "    max: [16", "queues.yaml, line 9: "),
        ("max_timeout: 24h", "max_timeout: 0", "queues[1].max_timeout: max_timeout: 0 would let no run begin"),
        ("weight: 2", "weight: .inf", "queues.yaml, line 9: queues[1].weight: weight: inf is not a weight"),
        ("weight: 2", "weight: .nan", "queues.yaml, line 9: queues[1].weight: weight: nan is not a weight"),
        ("policy:", "policy:\n  usage_half_life: 0", "policy.usage_half_life: usage_half_life: 0.0 is too short"),
        ("min_runtime: 5m", "min_runtime: soon", "queues.yaml, line 12: queues[1].min_runtime: min_runtime: soon"),
        ("parent: research", "parent: resaerch", "line 6: queues[1].parent: there is no queue resaerch"),
        ("- name: research", "- name: research\n    parent: vision", "its own ancestor (research → vision → research)"),
        ("- name: text", "- name: vision", "line 14: queues[2].name: there are two queues called vision"),
        ("@vision-team", "@visoin-team", "line 10: queues[1].users[1]: there is no group visoin-team"),
        ("eve: students", "eve: sudents", "line 19: default_queue.eve: there is no queue sudents"),
        ("[allocate, backfill]", "[alocate]", "line 21: policy.actions: actions: there is no alocate"),
        ("schema_version: 1", "schema_version: 2", "line 1: schema_version: schema_version 2: this version reads 1"),
        ("rates: {h100: 2.5", "rates: &r {r: *r", "queues.yaml, line 23"),
    ],
)
def test_a_mistake_is_said_with_its_line(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(OptionError) as caught:
        parse_queues(GOOD.replace(old, new, 1), "queues.yaml")
    assert message in caught.value.message
    assert caught.value.hint


def test_the_documented_file_says_who_shares():
    sharing = parse_queues(block("operate/queues.md", "## Parts of GPUs").text, "q").sharing
    assert sharing == Sharing(4, ("a100",), ("ann", "@students"))


def test_gpus_are_shared_by_all_unless_the_file_says_by_whom():
    node = Node("n", GPU, "NVIDIA A100-SXM4-80GB")
    shared = parse_queues("schema_version: 1", "q")
    shared.check_sharing("ann", "--gpus 0.5")
    assert shared.sharing.parts_of(node) == 20
    text = "schema_version: 1\ngroups: {lab: [bob]}\ngpu_sharing: {users: ['@lab'], types: [a100], at_most: 4}"
    some = parse_queues(text, "q")
    some.check_sharing("bob", "--gpus 0.5")
    with pytest.raises(OptionError, match="you may not share GPUs"):
        some.check_sharing("ann", "--gpus 0.5")
    assert [some.sharing.parts_of(each) for each in (node, replace(node, gpu_type="H100"))] == [4, 0]
    with pytest.raises(OptionError, match="of this cluster are not shared"):
        parse_queues("schema_version: 1\ngpu_sharing: {mode: none}", "q").check_sharing("bob", "--gpus 0.5")


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        ("{at_most: 1}", "line 2: gpu_sharing.at_most: 1 runs cannot share a GPU"),
        ("{users: ['@lab']}", "there is no group lab"),
        ("{mode: some}", "line 2: gpu_sharing.mode"),
        ("{most: 4}", "there is no such field"),
        ("{type: [a100]}", "there is no such field"),
    ],
)
def test_sharing_that_cannot_be_is_refused_with_its_line(sharing: str, words: str):
    with pytest.raises(OptionError, match=re.escape(words)):
        parse_queues(f"schema_version: 1\ngpu_sharing: {sharing}", "q")
