"""The sidebar in a real browser, with played answers: what it shows, offers and does; who can use it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_scenes
import pytest
from gpu_api import GpuApi, active, gpu, node, run, status, waiting
from lab_bed import execute
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import TimeoutError as TooLate
from sidebar_bed import LOOK, Team, open_sidebar, opened, press, press_escape, row, show_panel, wait_told
from soak import thorough

_BROWSER = "jupyter-gpu-release:browser-notifications"
_OFFERED = {
    "user": "ada",
    "email": "",
    "webhook": "",
    "starts": True,
    "pauses": True,
    "ends": True,
    "mail_from": "gpu@example.org",
    "webhook_hosts": ["hooks.slack.com"],
    "deliveries": [],
}
UntilTrue = Callable[[Callable[[], object], str], None]
AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"


def rows(page: Page, name: str) -> Locator:
    """The rows of the list with that name."""
    return page.get_by_role("tree", name=name, exact=True).get_by_role("treeitem")


@pytest.mark.slow("the first of a module starts JupyterLab")
def test_a_busy_day(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    tiles = shown.locator(".jp-GpuRelease-tile")
    expect(tiles).to_have_text([r"2free", "6in use3 yours", "3queuedplace 2"])
    expect(row(shown, "GPUs", "grace")).to_contain_text("71 of 80 GiB")
    expect(row(shown, "GPUs", "warm")).to_have_attribute(
        "aria-label", "GPU 2, Warm, you · digits.ipynb, 2 min 8 s, memory 2 of 80 GiB, busy 0 %"
    )
    expect(row(shown, "My runs", "ResNet")).to_contain_text("Epoch 17/40")
    expect(row(shown, "Queue", "lin")).to_contain_text("starts in about 12 min")
    expect(shown.locator(".jp-GpuRelease-usage tr").last).to_have_text("On the store11 GiB")
    expect(shown.locator(".jp-GpuRelease-statusItem")).to_have_text("3 held · queued, place 2 · 2 free")


def test_an_administrator_sees_who_used_how_much(shown: Page, api: GpuApi) -> None:
    gpu_scenes.administrators_day(api)
    execute(shown, LOOK)
    days = shown.get_by_role("list", name="GPU-hours of the last 7 days").get_by_role("listitem")
    expect(days).to_have_count(7)
    expect(days.last).to_contain_text("all held 56 h and used 48 h; you held 11 h")
    expect(shown.locator(".jp-GpuRelease-history")).to_contain_text("of what the cluster had")
    users = shown.locator(".jp-mod-users tbody tr")
    expect(users.first).to_have_text("grace83 h69 h0 h")
    expect(users.nth(1)).to_contain_text("you")
    expect(users.last).to_have_text("and 2 users more")
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    expect(users).to_have_count(0)  # others see the sum
    expect(days).to_have_count(7)


def test_a_cluster_is_started_where_none_is(shown: Page, api: GpuApi) -> None:
    gpu_scenes.no_cluster(api)
    api.answers["start"] = (409, {"error": {"message": "this server uses the gateway https://x", "mend": "ask"}})
    execute(shown, LOOK)
    situation = shown.locator(".jp-GpuRelease-situation")
    start = situation.get_by_role("button", name="Start")
    start.click()
    expect(situation.get_by_role("alert")).to_contain_text("this server uses the gateway https://x: ask")
    api.answers["start"] = (200, {"state": "starting"})
    start.click()
    document: Any = api.status
    document["start"] = {"state": "starting", "step": "starting Ray with 4 simulated GPUs", "elapsed_s": 2.0}
    execute(shown, LOOK)
    expect(situation).to_contain_text(
        re.compile(r"The cluster is starting.*Starting Ray with 4 simulated GPUs · \d+ s")
    )
    expect(situation.get_by_role("button")).to_have_count(0)
    gpu_scenes.simulated(api)
    execute(shown, LOOK)
    expect(situation).to_have_count(0)
    assert api.posts == [("cluster/start", {})] * 2


def test_release_of_a_warm_lease_is_one_click(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    warm = row(shown, "GPUs", "warm")
    press(warm, "Release")
    expect(warm.get_by_role("status")).to_have_text("Released")
    assert api.posts == [("leases/lease-7/release", {})]


def test_a_refusal_is_shown_in_place(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    api.answers["extend"] = (409, {"error": {"message": "the lease has ended", "mend": "run the cell again"}})
    execute(shown, LOOK)
    warm = row(shown, "GPUs", "warm")
    press(warm, "Extend")
    expect(warm.get_by_role("alert")).to_have_text("the lease has ended: run the cell again")
    assert api.posts == [("leases/lease-7/extend", {"keep_s": 1800})]


def test_cancel_asks_only_where_work_is_lost(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    waits = row(shown, "My runs", "llm.ipynb")
    press(waits, "Cancel")
    expect(waits.get_by_role("status")).to_contain_text("Asked to end")  # it has been asked, not only begun
    assert len(api.posts) == 1
    goes = row(shown, "My runs", "ResNet")
    press(goes, "Cancel")
    shown.get_by_role("button", name="Let it run").click()
    assert len(api.posts) == 1
    press(goes, "Cancel")
    shown.get_by_role("button", name="Cancel the run").click()
    expect(goes.get_by_role("status")).to_contain_text("Asked to end")
    assert len(api.posts) == 2


def test_the_reason_is_looked_for_by_the_server(shown: Page, api: GpuApi) -> None:
    """The findings are the real server's, which has a cluster."""
    gpu_scenes.no_cluster(api)
    api.passes = {"doctor"}
    execute(shown, LOOK)
    shown.locator(".jp-GpuRelease-situation").get_by_role("button", name="Check…").click()
    dialog = shown.get_by_role("dialog")
    expect(dialog).to_contain_text("0 broken", timeout=60_000)
    findings = dialog.get_by_role("listitem")
    expect(findings.filter(has_text="answers and knows the token")).to_contain_text("gateway")
    expect(findings.filter(has_text="can be written and read from here")).to_contain_text("server")
    assert dialog.get_by_role("img", name="Fine").count() > 5
    shown.add_script_tag(path=str(AXE))
    found = shown.evaluate("() => axe.run('.jp-GpuRelease-findings').then(result => result.violations)")
    assert [(rule["id"], rule["nodes"][0]["failureSummary"]) for rule in found] == []
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    execute(shown, "jupyter-gpu-release:doctor")  # as the palette does
    expect(dialog).to_contain_text("Check of the GPU Cluster")
    dialog.get_by_role("button", name="Close").click()


def test_what_is_not_mine_cannot_be_ended(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    others = row(shown, "GPUs", "grace")
    others.hover()
    expect(others.get_by_role("button")).to_have_count(0)
    document: Any = api.status
    document["cluster"]["role"] = "admin"
    execute(shown, LOOK)
    expect(others.get_by_role("button", name="Cancel")).to_have_count(1)


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (gpu_scenes.no_cluster, "No GPU cluster"),
        (gpu_scenes.no_gpu, "The cluster has no GPUs"),
        (gpu_scenes.gateway_down, "Running cells go on"),
        (gpu_scenes.simulated, "simulated"),
        (lambda api: setattr(api, "status", 403), "Not permitted"),
        (lambda api: setattr(api, "status", 404), "The server extension is not enabled"),
        (lambda api: setattr(api, "status", 502), "No contact"),
    ],
)
def test_every_situation_is_said(shown: Page, api: GpuApi, scene: Any, words: str) -> None:
    scene(api)
    execute(shown, LOOK)
    expect(shown.locator(".jp-GpuRelease")).to_contain_text(words)


def test_an_event_is_seen_at_once(shown: Page, api: GpuApi) -> None:
    api.status = status([node("gpu-01", gpu(0))], [], [])
    execute(shown, LOOK)
    expect(row(shown, "GPUs", "Free")).to_be_visible()
    api.status = status([node("gpu-01", gpu(0, "running", user="grace"))], [], [])
    api.emit("changed/v1", what="cluster")
    expect(row(shown, "GPUs", "grace")).to_be_visible()  # the next look of its own is minutes away


def test_what_changed_while_the_page_was_hidden_is_seen_on_return(shown: Page, api: GpuApi) -> None:
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})"
    api.status = status([node("gpu-01", gpu(0))], [], [])
    execute(shown, LOOK)
    expect(row(shown, "GPUs", "Free")).to_be_visible()
    shown.evaluate(f"() => {{ {hide}; document.dispatchEvent(new Event('visibilitychange')); }}")
    api.status = status([node("gpu-01", gpu(0, "running", user="grace"))], [], [])
    shown.evaluate("() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); }")
    expect(row(shown, "GPUs", "grace")).to_be_visible()


@pytest.mark.thorough
def test_a_cull_warning_is_answered(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    expect(row(shown, "GPUs", "explore")).to_be_visible()
    policy = {
        "action": "warn",
        "rule": "idle-warning",
        "reason": "idle for 42 min",
        "kind": "kernel",
        "subject": "k-1",
        "path": "explore.ipynb",
        "due_s": 300.0,
        "dry_run": False,
        "done": False,
    }
    api.emit("idle_policy/v1", **policy)
    toast = shown.locator(".Toastify__toast", has_text="explore.ipynb holds a GPU for nothing")
    expect(toast).to_contain_text("It is taken in 5 min")
    toast.get_by_role("button", name="Keep 30 min").click()
    wait_told(shown, "Kept for 30 minutes")
    assert ("kernels/k-1/keep", {"keep_s": 1800}) in api.posts
    api.emit("idle_policy/v1", **{**policy, "kind": "lease", "subject": "lease-7", "path": "digits.ipynb"})
    toast = shown.locator(".Toastify__toast", has_text="digits.ipynb holds a GPU for nothing")
    toast.get_by_role("button", name="Release now").click()
    wait_told(shown, "The GPU is released")
    assert ("leases/lease-7/release", {}) in api.posts


def test_how_one_is_told_of_detached_runs(shown: Page, api: GpuApi) -> None:
    """A refusal leaves what was typed; a webhook that is set is not shown; a test says how it went."""
    api.documents["notify"] = _OFFERED
    shown.evaluate("() => void window.jupyterapp.commands.execute('jupyter-gpu-release:notify')")
    dialog = shown.locator(".jp-Dialog")
    dialog.get_by_label("E-mail").fill("ada@elsewhere.net")
    dialog.get_by_label("Webhook").fill("https://hooks.slack.com/services/s3cret")
    dialog.get_by_label("starts after waiting").click()
    refusal = {"message": "this cluster sends no mail to elsewhere.net", "mend": "only to example.org"}
    api.answers["notify"] = (400, {"message": refusal["message"], "error": refusal})
    dialog.get_by_role("button", name="Save and send a test").click()
    expect(dialog.get_by_role("alert")).to_have_text(f"{refusal['message']}: {refusal['mend']}")
    expect(dialog.get_by_label("E-mail")).to_have_value("ada@elsewhere.net")
    taken = [{"channel": "mail", "at": time.time()}]
    api.answers = {"notify": (200, _OFFERED), "test": (200, _OFFERED | {"deliveries": taken})}
    dialog.get_by_label("E-mail").fill("ada@example.org")
    dialog.get_by_role("button", name="Save and send a test").click()
    wait_told(shown, "was taken.")
    wanted = {"email": "ada@example.org", "webhook": "https://hooks.slack.com/services/s3cret", "starts": False}
    assert api.posts[-2:] == [("notify", wanted), ("notify/test", {})]


def test_the_menu_arranges_the_gpus_and_the_settings_keep_it(
    shown: Page, api: GpuApi, team: Team, until: Callable[[Callable[[], object], str], None]
) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    first = rows(shown, "GPUs").first
    expect(first).to_have_attribute("aria-label", "gpu-01, 1 of 4 free")
    shown.get_by_title("Group and sort").first.click()
    shown.locator(".lm-Menu-item", has_text="Group GPUs by Holder").click()
    expect(first).to_have_attribute("aria-label", "ada, 0 of 2 free")
    url = f"{team.lab.url}/lab/api/settings/jupyter-gpu-release:plugin?token={team.lab.token}"
    until(lambda: '"grouping": "user"' in shown.request.get(url).json()["raw"], "the setting is kept")
    execute(shown, "jupyter-gpu-release:group-by", {"by": "node"})
    expect(first).to_have_attribute("aria-label", "gpu-01, 1 of 4 free")


def test_the_end_of_a_long_run_is_told(shown: Page, api: GpuApi) -> None:
    mine = run(0, "running", name="ResNet")
    api.status, api.runs = status([node("gpu-01", gpu(0))], [], [active(mine)]), [mine]
    execute(shown, LOOK)
    expect(row(shown, "My runs", "ResNet")).to_be_visible()
    api.status, api.runs = status([node("gpu-01", gpu(0))], [], []), [{**mine, "state": "succeeded"}]
    execute(shown, LOOK)
    toast = shown.locator(".Toastify__toast", has_text="ResNet")
    expect(toast).to_contain_text("ResNet succeeded. It held its GPU for 2 min 8 s.")


def test_512_gpus_and_1000_waiting_are_a_few_elements(shown: Page, api: GpuApi) -> None:
    gpu_scenes.crowd(api)
    execute(shown, LOOK)
    expect(row(shown, "Queue", "you")).to_be_visible()
    expect(row(shown, "GPUs", "gpu-001")).to_be_visible()
    assert rows(shown, "GPUs").count() < 40
    assert rows(shown, "Queue").count() < 40
    rows(shown, "GPUs").first.focus()
    shown.keyboard.press("End")
    expect(row(shown, "GPUs", "7")).to_be_attached()
    expect(shown.locator(":focus")).to_have_attribute("aria-posinset", "8")
    shown.get_by_role("searchbox", name="Filter the lists").or_(shown.get_by_label("Filter the lists")).first.fill(
        "gpu-017 grace"
    )
    expect(rows(shown, "GPUs").first).to_contain_text("gpu-017")
    expect(rows(shown, "Queue")).to_have_count(0)
    shown.keyboard.press("Escape")
    expect(row(shown, "Queue", "you")).to_be_visible()


def test_keyboard_alone_opens_and_keeps(shown: Page, api: GpuApi) -> None:
    api.answers["extend"] = (200, {"until": time.time() + 1800})
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    expect(row(shown, "GPUs", "warm")).to_be_visible()
    rows(shown, "GPUs").first.focus()
    for _ in range(3):
        shown.keyboard.press("ArrowDown")
    expect(shown.locator(":focus")).to_have_attribute(
        "aria-label", "GPU 2, Warm, you · digits.ipynb, 2 min 8 s, memory 2 of 80 GiB, busy 0 %"
    )
    shown.keyboard.press("Tab")
    expect(shown.locator(":focus")).to_have_attribute("aria-label", "Release")
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    expect(row(shown, "GPUs", "warm").get_by_role("status")).to_contain_text("Kept until")
    assert api.posts == [("leases/lease-7/extend", {"keep_s": 1800})]


_FOCUSED = """() => {
  const panel = document.querySelector('#jupyter-gpu-release-panel'), found = document.activeElement;
  const { top, left } = found.getBoundingClientRect();
  return panel.contains(found) ? [Math.round(top), Math.round(left)] : null;
}"""


def test_the_tab_key_goes_through_the_panel_as_it_is_shown(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    expect(row(shown, "GPUs", "warm")).to_be_visible()
    shown.get_by_role("region", name="GPUs", exact=True).get_by_role("button").first.focus()
    places = []
    while (place := shown.evaluate(_FOCUSED)) is not None and len(places) < 60:
        places.append(place)
        shown.keyboard.press("Tab")
    assert 10 < len(places) < 60
    tops = [top for top, _left in places]
    assert tops == sorted(tops), f"from the top to the bottom: {places}"


def test_the_focus_stays_in_the_list_when_a_row_goes(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    focused = shown.locator("#jupyter-gpu-release-panel :focus")
    waits = row(shown, "Queue", "you")
    waits.focus()
    shown.keyboard.press("Tab")
    expect(focused).to_have_attribute("aria-label", "Cancel")
    shown.keyboard.press("Enter")
    expect(waits.get_by_role("status")).to_contain_text("Asked to end")
    expect(focused).to_have_count(1)
    document: Any = api.status
    document["cluster"]["queue"] = [each for each in document["cluster"]["queue"] if each["user"] != "ada"]
    execute(shown, LOOK)
    expect(rows(shown, "Queue").locator(":scope:focus")).to_have_count(1)
    document["cluster"]["queue"] = []
    execute(shown, LOOK)
    expect(rows(shown, "Queue")).to_have_count(0)
    expect(focused).to_contain_text("Queue")


def test_the_focus_stays_after_let_it_run_and_after_escape(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    goes = row(shown, "My runs", "ResNet")
    for leave in (lambda: shown.get_by_role("button", name="Let it run").click(), lambda: press_escape(shown)):
        goes.focus()
        goes.get_by_role("button", name="Cancel").press("Enter")
        expect(shown.get_by_role("dialog")).to_be_visible()
        leave()
        expect(shown.get_by_role("dialog")).to_have_count(0)
        expect(goes.locator(":focus")).to_have_attribute("aria-label", "Cancel")
    goes.focus()
    shown.keyboard.press("ContextMenu")
    expect(shown.locator(".lm-Menu")).to_be_visible()
    shown.keyboard.press("Escape")
    expect(goes.locator(":scope:focus")).to_have_count(1)
    assert api.posts == []


def test_the_focus_comes_back_from_dialogs_that_menus_and_buttons_open(shown: Page, api: GpuApi) -> None:
    """Also where a menu, a confirmation or a refusal came in between."""
    api.documents["notify"] = _OFFERED
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    arrange = shown.get_by_title("Group and sort").first
    for leave in ("Cancel", "Escape"):
        arrange.focus()
        shown.keyboard.press("Enter")
        shown.locator(".lm-Menu-item", has_text="Tell Me of Detached Runs").click()
        dialog = shown.get_by_role("dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click() if leave == "Cancel" else press_escape(shown)
        expect(dialog).to_have_count(0)
        expect(arrange).to_be_focused()
    goes = row(shown, "My runs", "ResNet")
    goes.focus()
    shown.keyboard.press("ContextMenu")
    shown.locator(".lm-Menu-item", has_text="Cancel").click()
    shown.get_by_role("button", name="Let it run").click()
    expect(goes.locator(":scope:focus")).to_have_count(1)
    gpu_scenes.no_cluster(api)
    execute(shown, LOOK)
    check = shown.locator(".jp-GpuRelease-situation").get_by_role("button", name="Check…")
    check.press("Enter")
    shown.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(check).to_be_focused()


#: of each section
_LEAST_ROWS = (4, 2, 1, 1, 0)
_HEIGHTS = """() => [...document.querySelectorAll('#jupyter-gpu-release-panel .jp-GpuRelease-section')]
  .filter(each => each.offsetParent !== null)
  .map(each => {
    const rows = [...each.querySelectorAll('[role=treeitem]')].map(row => row.getBoundingClientRect());
    const box = each.getBoundingClientRect();
    return [Math.round(box.height), rows.filter(row => row.top >= box.top - 1 && row.bottom <= box.bottom + 1).length];
  })"""


def test_five_sections_share_the_height_of_a_laptop(shown: Page, api: GpuApi) -> None:
    """850 px: each list shows some whole rows, none is squeezed to its title, and nothing is cut off below."""
    gpu_scenes.busy_day(api)
    shown.set_viewport_size({"width": 1100, "height": 850})
    execute(shown, LOOK)
    expect(shown.get_by_role("region", name="Kernels with GPU memory")).to_be_visible()
    fits = f"least => {{ const found = ({_HEIGHTS})(); return found.length === least.length && found.every("
    fits += "([height, whole], n) => height >= 48 && whole >= least[n]); }"
    with contextlib.suppress(TooLate):  # sections are as high as their lists are, once these are drawn
        shown.wait_for_function(fits, arg=_LEAST_ROWS, timeout=20_000)
    found = shown.evaluate(_HEIGHTS)
    assert len(found) == len(_LEAST_ROWS)
    assert all(whole >= least and height >= 48 for (height, whole), least in zip(found, _LEAST_ROWS, strict=True)), (
        found
    )
    below = "() => document.querySelector('#jupyter-gpu-release-panel').getBoundingClientRect().bottom"
    last = shown.locator("#jupyter-gpu-release-panel .jp-GpuRelease-section").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] <= shown.evaluate(below) + 1
    expect(row(shown, "Queue", "you").get_by_text("you")).to_be_in_viewport()  # my place is what I look for


@pytest.mark.parametrize("theme", ["JupyterLab Dark", *thorough("JupyterLab Dark High Contrast")])
def test_axe_finds_nothing(shown: Page, api: GpuApi, theme: str) -> None:
    """Other states and the light theme are in ``test_scenes.py``."""
    gpu_scenes.administrators_day(api)
    execute(shown, "apputils:change-theme", {"theme": theme})
    execute(shown, LOOK)
    expect(shown.locator(".jp-GpuRelease-situation[aria-busy]")).to_have_count(0)
    shown.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    if not shown.evaluate("() => 'axe' in window"):
        shown.add_script_tag(path=str(AXE))
    # JupyterLab's own toolbar button says aria-pressed without a role
    found = shown.evaluate(
        "() => axe.run({include: '#jupyter-gpu-release-panel', exclude: 'jp-button'}).then(result => result.violations)"
    )
    assert [
        (rule["id"], [one["html"][:200] for one in rule["nodes"]], rule["nodes"][0]["failureSummary"]) for rule in found
    ] == []


_OUTSIDE = """() => {
  const panel = document.querySelector('#jupyter-gpu-release-panel');
  const edge = panel.getBoundingClientRect().right - 4;  // texts end 8 px before it
  const ends = element => element.getBoundingClientRect().right;
  return [...panel.querySelectorAll('[role=treeitem] span, [role=treeitem] button, li, th, td')]
    .filter(element => ends(element) > edge).map(element => element.textContent);
}"""


def test_a_narrow_panel_cuts_nothing_off(shown: Page, api: GpuApi) -> None:
    """What has no room at 220 px ends in an ellipsis inside of the panel, opened rows and their buttons, too."""
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)
    show_panel(shown, 220)
    warm = row(shown, "GPUs", "warm")
    warm.press("Enter")
    expect(warm.get_by_text("Open notebook")).to_be_attached()
    assert shown.evaluate(_OUTSIDE) == []
    warm.press("Enter")
    show_panel(shown, 320)


_RECORDED = """
window.asked = 0; window.told = [];
window.Notification = class { constructor(title, options) { window.told.push([title, options.body]); } close() {} };
window.Notification.permission = 'default';
window.Notification.requestPermission = async () => { window.asked += 1; return window.Notification.permission; };
"""
_LOOKS_AWAY = "document.hasFocus = () => false; window.dispatchEvent(new Event('blur'))"
_LOOKS = "document.hasFocus = () => true; window.dispatchEvent(new Event('focus'))"


def _tells_once(page: Page, api: GpuApi, team: Team, until: UntilTrue) -> None:
    """Of two pages one tells; none does while a person looks at either."""
    other = page.context.new_page()
    other.add_init_script(f"{_RECORDED} window.Notification.permission = 'granted';")
    other_api = GpuApi(other)
    pages = ((page, api), (other, other_api))
    told_before = page.evaluate("window.told.length")
    other_api.status, other_api.runs = api.status, api.runs
    open_sidebar(other, team.lab)
    for number, looks in ((2, False), (3, True), (4, False)):
        other.evaluate(_LOOKS if looks else _LOOKS_AWAY)
        other.wait_for_function(_IS_NOTED, arg=looks)
        for state in ("running", "succeeded"):
            now = run(number, state, title=f"run {number}")
            for shown, its in pages:
                its.status = status([node("gpu-01", gpu(0))], [], [active(now)] if state == "running" else [])
                its.runs = [now]
                execute(shown, LOOK)
                expect(row(shown, "My runs", f"run {number}")).to_contain_text(
                    "ago" if state == "succeeded" else "NVIDIA"
                )
                shown.evaluate("() => navigator.locks.query().then(() => null)")  # its own question has been answered

    def told() -> list[str]:
        return [title for shown, _ in pages for title, _ in shown.evaluate("window.told")]

    until(lambda: "run 4" in told(), "the last one is told")
    assert sorted(told()[told_before:]) == ["run 2", "run 4"]
    other.close()


_IS_NOTED = (
    "looks => navigator.locks.query().then(({held}) => held.some(({name}) => name.endsWith('is seen')) === looks)"
)


@pytest.mark.thorough
def test_the_browser_tells_what_happened_once_the_user_has_asked_for_it(
    browser: Browser, team: Team, until: UntilTrue
) -> None:
    """The command alone asks for the permission; a refusal is said; a start after waiting and an end are told."""
    with opened(browser) as page:
        page.add_init_script(_RECORDED)
        api = GpuApi(page)
        waits = run(1, "queued", title="fit(model)", origin="digits.ipynb [3]")
        api.status, api.runs = status([node("gpu-01", gpu(0))], [], [active(waits)]), [waits]
        open_sidebar(page, team.lab)
        expect(row(page, "My runs", "fit(model)")).to_be_visible()
        assert page.evaluate("window.asked") == 0
        execute(page, _BROWSER)
        wait_told(page, "The browser refuses notifications of this page")
        page.evaluate("Notification.permission = 'granted'")
        execute(page, _BROWSER)
        page.wait_for_function(f"window.jupyterapp.commands.isToggled('{_BROWSER}')")
        page.evaluate(_LOOKS_AWAY)
        for number, state in enumerate(("running", "failed"), start=1):
            error = {"ename": "ValueError", "evalue": "no"} if state == "failed" else None
            now = run(1, state, title="fit(model)", origin="digits.ipynb [3]", queued_s=75.0, error=error)
            api.status, api.runs = status([node("gpu-01", gpu(0))], [], [active(now)] * (error is None)), [now]
            execute(page, LOOK)
            page.wait_for_function(f"window.told.length === {number}")
        assert page.evaluate("window.told") == [
            ["fit(model)", "has its GPUs after 1 min 15 s"],
            ["fit(model)", "Failed · ValueError: no · digits.ipynb [3]"],
        ]
        assert page.evaluate("window.asked") == 2
        _tells_once(page, api, team, until)
        execute(page, _BROWSER)
        page.wait_for_function(f"!window.jupyterapp.commands.isToggled('{_BROWSER}')")


def test_the_menu_of_a_row_offers_what_may_be_done(shown: Page, api: GpuApi) -> None:
    gpu_scenes.busy_day(api)
    api.runs[0] |= {"title": "ResNet, 40 epochs", "origin": "papermill digits.ipynb [3]"}
    execute(shown, LOOK)
    items = shown.locator(".lm-Menu-item[data-command^='jupyter-gpu-release']:not(.lm-mod-hidden) .lm-Menu-itemLabel")
    goes = row(shown, "My runs", "ResNet")
    expect(goes).to_contain_text("papermill digits.ipynb [3]")
    goes.click(button="right")
    copies = ["Copy id", "Copy %gpu_attach line"]
    expect(items).to_have_text(["Show run and log", "Open notebook", "Attach", "Pin results", "Cancel", *copies])
    items.filter(has_text="Pin results").click()
    expect(goes.get_by_role("status")).to_contain_text("Pinned")
    row(shown, "GPUs", "grace").click(button="right")
    expect(items).to_have_text(["Copy id"])  # another user's
    shown.keyboard.press("Escape")
    row(shown, "GPUs", "warm").click(button="right")
    expect(items).to_have_text(["Show run and log", "Open notebook", "Extend", "Pin results", "Release", *copies])
    items.filter(has_text="Release").click()
    expect(row(shown, "GPUs", "warm").get_by_role("status")).to_have_text("Released")
    queued = rows(shown, "Queue").nth(1)
    queued.focus()
    shown.keyboard.press("ContextMenu")
    expect(items.filter(has_text="Cancel")).to_be_visible()
    items.filter(has_text="Cancel").click()
    expect(queued.get_by_role("status")).to_contain_text("Asked to end")
    assert [path for path, _ in api.posts] == [
        f"runs/{api.runs[0]['run']}/pin",
        "leases/lease-7/release",
        f"runs/{api.runs[1]['run']}/cancel",
    ]


def test_the_queue_says_who_i_am(shown: Page, api: GpuApi) -> None:
    api.status = status([node("gpu-01", gpu(0))], [waiting(1, "lin"), waiting(2, "ada")], [])
    execute(shown, LOOK)
    expect(row(shown, "Queue", "you")).to_be_visible()
    mine = row(shown, "Queue", "you")
    mine.hover()
    expect(mine.get_by_role("button", name="Cancel")).to_be_visible()
