"""Layers that do not look at their input keep every invariant, and pass none."""

from collections.abc import Callable
from pathlib import Path

import pytest

INVARIANTS = ("--case", "pre-gelu/invariant-*", "--dtype", "float32")
FEW = ("--case", "pre-gelu/invariant-determinism", "--dtype", "float32")

IGNORES = {
    "zeros": "return np.zeros_like(x)",
    "ones": "return np.ones_like(x)",
    "a-constant-for-each-feature": "return np.broadcast_to(np.arange(x.shape[-1], dtype=x.dtype), x.shape).copy()",
    "a-trace-of-the-input": "return np.ones_like(x) + x * np.float32(1e-12)",
    "less-than-rounding": "return np.ones_like(x) * (1 + np.float32(1e-9) * x.mean())",
}


def test_an_output_that_ignores_the_input_passes_no_invariant(conform: Callable, fake: Callable) -> None:
    words = list[Path | str]()
    for name, body in IGNORES.items():
        words += ["--impl", fake(name.replace("-", "_"), f"def output(self, x, masks, run):\n    {body}")]
    ended = conform("run", *words, *INVARIANTS)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert set(ended.outcomes()) == {"inconclusive"}
    assert {record["kind"] for record in ended.report["records"]} == {"input-ignored"}
    assert all("the output is the same with another x" in record["message"] for record in ended.report["records"])
    assert f"0 of {len(ended.outcomes())} checks conform ({len(ended.outcomes())} inconclusive)" in ended.stdout
    assert all(shown["not_cited"] for shown in ended.report["shown"])


def test_zeros_that_differ_from_call_to_call_break_determinism(conform: Callable, fake: Callable) -> None:
    lie = """
    calls = 0

    def output(self, x, masks, run):
        self.calls += 1
        return np.full_like(x, self.calls)
    """
    asked = ("--case", "pre-gelu/invariant-determinism", "--dtype", "float32")
    ended = conform("run", "--impl", fake("counting", lie), *asked, diagnosed=False)
    assert set(ended.outcomes()) == {"fail"}


@pytest.mark.parametrize("act", ["raise ValueError('no')", "os._exit(1)", "return np.zeros(3, 'float32')"])
def test_what_fails_on_another_input_fails(conform: Callable, fake: Callable, act: str) -> None:
    """The last request of I-8 is that with x anew."""
    lie = f"""
    first = None

    def output(self, x, masks, run):
        self.first = x.copy() if self.first is None else self.first
        if not np.array_equal(x, self.first):
            {act}
        return super().output(x, masks, run)
    """
    words = ("--case", "pre-gelu/invariant-determinism", "--dtype", "float32")
    ended = conform("run", "--impl", fake("limited", lie), *words, diagnosed=False)
    assert ended.status == 1, ended.stdout + ended.stderr
    [outcome] = ended.outcomes()
    assert outcome in ("error", "crash", "fail")
    assert "with x anew: " in ended.messages()


def test_a_run_of_invariants_alone_says_what_it_does_not_show(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, *FEW)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert set(ended.outcomes()) == {"pass"}
    assert "Invariants alone do not show what a layer computes" in ended.stdout
    more = conform("run", "--impl", honest, *FEW, "--case", "pre-gelu/no-mask")
    assert "Invariants alone" not in more.stdout
