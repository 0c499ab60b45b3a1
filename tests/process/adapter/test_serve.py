"""What an adapter answers that safetensors cannot hold is its error, not its end."""

from collections.abc import Callable


def test_an_answer_that_cannot_be_framed_is_an_error(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        return super().output(x, masks, run).astype(np.longdouble)
    """
    ended = conform("run", "--impl", fake("wide", lie), "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ended.outcomes() == ["error", "pass", "pass"]


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
