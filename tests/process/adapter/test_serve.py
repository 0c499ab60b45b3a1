"""What an adapter answers that safetensors cannot hold is its error, not its end."""

from collections.abc import Callable

import pytest
from products import of_a_release


@pytest.mark.release
def test_an_answer_that_cannot_be_framed_is_an_error(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        return super().output(x, masks, run).astype(np.longdouble)
    """
    ended = conform("run", "--impl", fake("wide", lie), "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ended.outcomes() == ["error", "pass", "pass"]


BY_ADDRESS = """
def output(self, x, masks, run):
    import ctypes
    from dataclasses import replace
    def in_a_row(value):
        return value if value is None else np.frombuffer(
            ctypes.string_at(value.ctypes.data, value.nbytes), value.dtype).reshape(value.shape)
    x = in_a_row(x) if "x" in "{read}" else x
    masks = replace(masks, padding=in_a_row(masks.padding)) if "mask" in "{read}" else masks
    return super().output(x, masks, run)
"""


@pytest.mark.parametrize(
    ("read", "situation"), [("mask", "padding-2d"), of_a_release("x", "no-mask"), of_a_release("nothing", "padding-2d")]
)
def test_an_adapter_is_given_views(conform: Callable, fake: Callable, read: str, situation: str) -> None:
    """What goes by addresses is right of the arrays that the wire brings, and wrong of a user's slices."""
    folder = fake("by_address", BY_ADDRESS.replace("{read}", read))
    ended = conform("run", "--impl", folder, "--case", f"pre-gelu/{situation}", "--dtype", "float32")
    [output, *_] = ended.report["records"]
    if read == "nothing":
        assert output["outcome"] == "pass"
    else:
        assert output["outcome"] == "error"
        assert "where x and masks are views, with strides and an offset" in output["message"]


def test_a_worker_that_answers_looks_for_cycles_but_not_among_what_was_imported(
    conform: Callable, fake: Callable
) -> None:
    """While the adapter is imported nothing looks for them, and it would be so for ever if nobody ended it."""
    lie = """
    def start(self, device, threads):
        import gc
        started = super().start(device, threads)
        found = {"looks": gc.isenabled(), "passes over": gc.get_freeze_count() > 0}
        return Environment(started.versions, found)
    """
    ended = conform("run", "--impl", fake("cycles", lie), "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ended.report["implementations"][0]["settings"] == {"looks": True, "passes over": True}
