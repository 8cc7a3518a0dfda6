"""The file of ``start --slurm``, as the pages have it and as it must not be."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import Block, blocks_in

from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.local_cluster.slurm_pool import read_pool


@pytest.mark.parametrize("block", blocks_in("start/slurm.md", "yaml") + blocks_in("operate/slurm.md", "yaml"), ids=str)
def test_the_files_of_the_pages_are_right(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pool.yml").write_text(block.text)
    assert read_pool(str(tmp_path / "pool.yml")).partition == "gpu"


@pytest.mark.parametrize("block", blocks_in("start/slurm.md", "") + blocks_in("operate/slurm.md", ""), ids=str)
def test_the_commands_of_the_pages_are_right(block: Block) -> None:
    (command,) = block.commands()
    assert parse(command.split()[2:]).slurm == "pool.yml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_nodes: 1\nmax_node: 3\n", "unknown field `max_node`"),
        ("max_nodes: many\n", "Expected `int`, got `str`"),
        ("max_nodes: 0\n", "Expected `int` >= 1"),
        ("partition: gpu\n", "missing required field `max_nodes`"),
        ("[1, 2]\n", "Expected `object`"),
        ("max_nodes: [", "cannot read"),
        ("max_nodes: 1\nsbatch: [--output=x]\n", "--output=x is set by the pool itself"),
        ("max_nodes: 1\nwalltime: 1s\n", "walltime 1s is below 5 minutes"),
    ],
)
def test_a_mistake_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pool.yml").write_text(text)
    with pytest.raises(OptionError, match=says) as caught:
        read_pool(str(tmp_path / "pool.yml"))
    assert str(tmp_path / "pool.yml") in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--slurm"):
        read_pool(str(tmp_path / "none.yml"))
