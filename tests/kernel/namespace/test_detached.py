"""PyTorch's words about a tensor that came home without its graph are explained, as long as the name holds it."""

from __future__ import annotations

from types import SimpleNamespace

from jupyter_gpu_release.kernel.namespace.detached import DetachedResults

_ERROR = "element 0 of tensors does not require grad and does not have a grad_fn"


def test_only_what_still_is_the_result_is_named() -> None:
    names = {"loss": object(), "other": object()}
    detached = DetachedResults(SimpleNamespace(user_ns=names, custom_exceptions=(ValueError,)))
    detached.add_notes(["`loss` came back detached", "`other` came back detached", "`third` was sent"])
    assert detached.hint("another error") == ""
    names["other"] = object()
    assert detached.hint(_ERROR).startswith("`loss` came back from a GPU cell")
    names["loss"] = object()
    assert detached.hint(_ERROR) == ""
