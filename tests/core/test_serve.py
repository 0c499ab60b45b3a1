"""What an adapter answers that safetensors cannot hold is its error, not its end."""

from collections.abc import Callable


def test_an_answer_that_cannot_be_framed_is_an_error(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks):
        return super().output(x, masks).astype(np.longdouble)
    """
    ended = conform("run", "--impl", fake("wide", lie), "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ended.outcomes() == ["error", "pass", "pass"]
