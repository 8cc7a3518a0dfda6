"""The stories that README and tutorial show; `make screenshots` records the same ones."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page
from sidebar_bed import Team
from stories import FirstPicture, Tutorial, colleague


def test_the_tutorial_as_it_is_written(page: Page, team: Team) -> None:
    Tutorial(page, team.lab.root, lambda step: None).play(stop=False)


def test_the_story_of_the_readme(page: Page, team: Team, tmp_path: Path) -> None:
    hers = {"JUPYTER_GPU_URL": team.gateway.url, "JUPYTER_GPU_TOKEN": team.grace}
    with colleague(tmp_path, hers) as asks:
        story = FirstPicture(page, team.lab, asks)
        story.prepare()
        story.train()
        story.look()
