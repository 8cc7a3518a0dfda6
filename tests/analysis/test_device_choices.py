"""Device choices and placements in the source of executed cells."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_gpu_release.analysis.device_choices import DeviceHistory, DeviceLedger

CHOICE = "'cuda' if torch.cuda.is_available() else 'cpu'"


def ledger_of(*cells: str, inside: tuple[str, ...] = ()) -> DeviceLedger:
    roots = {"tf": "tensorflow", "t": "torch", "is_available": "torch.cuda.is_available"}
    ledger = DeviceLedger(resolve=lambda name: roots.get(name, name), consults_inside=lambda name: name in inside)
    for cell in cells:
        ledger.add(cell)
    return ledger


def expression(ledger: DeviceLedger, name: str = "device") -> str | None:
    choice = ledger.wanted([name]).get(name)
    return choice.expression if choice else None


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([f"device = {CHOICE}"], CHOICE),
        ([f"device: str = {CHOICE}"], CHOICE),
        ([f"import torch\ndevice = torch.device({CHOICE})"], f"torch.device({CHOICE})"),
        ([f"a, device = 1, {CHOICE}"], CHOICE),
        (["if torch.cuda.is_available():\n    device = 'cuda'\nelse:\n    device = 'cpu'"], f"({CHOICE})"),
        (["device = 'cpu'", "if torch.cuda.is_available(): device = 'cuda'"], CHOICE),
        ([f"get_ipython().run_cell_magic('gpu_train', '', \"device = {CHOICE}\")"], CHOICE),
        (["device = torch.accelerator.current_accelerator()"], "torch.accelerator.current_accelerator()"),
        (["device = len(tf.config.list_physical_devices('GPU'))"], "len(tf.config.list_physical_devices('GPU'))"),
        (["device = jax.devices()[0]"], "jax.devices()[0]"),
        (["device = t.cuda.device_count()"], "t.cuda.device_count()"),
        (["device = 'cuda' if is_available() else 'cpu'"], "'cuda' if is_available() else 'cpu'"),
        ([f"device = {CHOICE}", "device = 'cpu'"], None),
        ([f"device = {CHOICE}", "for device in ['cpu']: pass"], None),
        ([f"device = {CHOICE}", "import device"], None),
        ([f"device = {CHOICE}", "def device(): pass"], None),
        ([f"device = {CHOICE}", "device += 'x'"], None),
        ([f"device = {CHOICE}", "unrelated = (1"], CHOICE),
        (["device = train(torch.cuda.is_available())"], None),
        ([f"device = [f(x) for x in {CHOICE}]"], None),
        ([f"def f():\n    device = {CHOICE}"], None),
        (["device = 'cpu'"], None),
    ],
)
def test_the_last_assignment_decides(cells: list[str], expected: str | None) -> None:
    found = expression(ledger_of(*cells))
    assert (found or "").strip("()") == (expected or "").strip("()")


def test_chains_are_evaluated_in_order() -> None:
    ledger = ledger_of(
        "ok = torch.cuda.is_available()", "n = 2 if ok else 0\ndevice = f'cuda:{n - 1}' if ok else 'cpu'"
    )
    wanted = ledger.wanted(["device"])
    assert list(wanted) == ["ok", "n", "device"]
    assert wanted["device"].needs == ("n", "ok") or wanted["device"].needs == ("ok", "n")
    assert "torch" in wanted["ok"].reads


@pytest.mark.parametrize(
    "cells",
    [
        [f"device = {CHOICE}", "device = torch.device(device)"],
        [f"device = {CHOICE}", *["device = torch.device(f'{device}')"] * 2],
        [f"device = {CHOICE}", "if torch.cuda.is_available(): device = torch.device(device)"],
        [f"kind = {CHOICE}", "device = torch.device(kind)", "kind = device", "kind = 'cpu'"],
        [f"device = {CHOICE}", "first = torch.device(device)", "device = first", "first = device"],
        ["device = 'cpu'", "if torch.cuda.is_available():\n    device = 'cuda'\n    device = torch.device(device)"],
        ["kind = 'cuda'", "device = kind if torch.cuda.is_available() else 'cpu'", "kind = 'cpu'"],
    ],
)
@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_choice_is_made_of_what_its_names_were(cells: list[str], has_gpu: bool) -> None:
    names: dict[str, object] = {
        "torch": SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: has_gpu), device=str)
    }
    for name, choice in ledger_of(*cells).wanted(["device"]).items():
        names[name] = eval(choice.expression, names)
    assert names["device"] == ("cuda" if has_gpu else "cpu")


def test_a_choice_made_of_itself_again_and_again_ends() -> None:
    wrapped = [f"device = {CHOICE}", *["device = torch.device(device)"] * 300]
    assert expression(ledger_of(*wrapped)) is None
    nested = expression(ledger_of(f"device = {CHOICE}", *["device = f'{device}'"] * 9))
    if nested is not None:  # since Python 3.12 quotes within f-strings do not run out
        assert eval(nested, {"torch": SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))}) == "cuda"


def test_a_choice_that_is_written_out_still_reads_what_it_was_made_of() -> None:
    ledger = ledger_of(
        "device = 'cuda' if wanted and torch.cuda.is_available() else 'cpu'", "at = torch.device(device)"
    )
    ledger.add("device = 'cpu'")
    assert {"wanted", "torch"} <= ledger.wanted(["at"])["at"].reads


def test_a_choice_that_is_written_out_is_of_the_hardware_of_what_it_was_made_of() -> None:
    there, here = "get_ipython().run_cell_magic('gpu_train', '', 'n = torch.cuda.device_count()')", "m = n * 2"
    choice = ledger_of(there, here, "n = 5").choices["m"]
    assert (choice.expression, choice.in_gpu_cell) == ("torch.cuda.device_count() * 2", True)


def test_the_history_goes_on_after_a_reset_and_what_came_home_counts_until_it_is_bound_anew() -> None:
    names: dict[str, object] = {"came": "cpu", "anew": "cpu"}
    cells = ["x = 1", f"old = {CHOICE}"]
    history = DeviceHistory(names, lambda: cells)
    history.note_returned({"came": "cuda", "anew": "cuda"})
    names["anew"] = "mine"
    assert list(history.up_to("").choices) == ["old", "came"]
    cells[:] = [f"new = {CHOICE}"]
    assert "new" in history.up_to("").choices


def test_through_a_function_of_the_notebook() -> None:
    ledger = ledger_of("device = pick()\nresult = train(1)", inside=("pick", "train"))
    assert ledger.wanted(["device"])["device"].through_function
    ledger.add(f"plain = {CHOICE}")
    ledger.add("both = device or plain")
    assert ledger.wanted(["both"])["both"].through_function
    assert ledger.wanted(["result"])["result"].through_function


@pytest.mark.parametrize(
    ("cells", "placed"),
    [
        (["model = Net().to(device)"], {"model": True}),
        (["model = Net()", "model.to(device)"], {"model": True}),
        (["x, y = x.to(device), y.to(device)"], {"x": True, "y": True}),
        (["x = torch.zeros(3, device=device)"], {"x": True}),
        (["model.cuda()"], {"model": True}),
        ([f"model.to({CHOICE})"], {"model": True}),
        (["model = Net().to(device)", "model = model.cpu()"], {"model": False}),
        (["model.to(device)", "model.to('cpu')"], {"model": False}),
        (["model.to(device)", "model = Net()"], {}),
        (["model = Net().to(torch.float16)"], {}),
        (["model = Net().to('cpu')"], {"model": False}),
    ],
)
def test_placements(cells: list[str], placed: dict[str, bool]) -> None:
    assert ledger_of(f"device = {CHOICE}", *cells).placed == placed
