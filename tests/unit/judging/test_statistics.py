"""The tests of chance behind dropout: a shortcut says what the exact test says."""

from math import comb

import pytest

from encoder_conformance.judging.checks.training.statistics import is_likely, smaller_tail

LEAST = 1e-9


@pytest.mark.parametrize("count", [1, 30, 120])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.97])
def test_a_number_is_as_likely_as_its_smaller_tail_whatever_it_is(count: int, rate: float) -> None:
    exact = [comb(count, n) * rate**n * (1 - rate) ** (count - n) for n in range(count + 1)]
    for dropped in range(count + 1):
        tail = min(sum(exact[: dropped + 1]), sum(exact[dropped:]))
        assert smaller_tail(dropped, count, rate) == pytest.approx(tail, rel=1e-4)
        for least in (LEAST, tail * 1.01, tail * 0.99):
            assert is_likely(dropped, count, rate, least) is (tail >= least)


def test_a_rate_of_nothing_or_all_leaves_one_number() -> None:
    assert [is_likely(dropped, 9, 0.0, LEAST) for dropped in (0, 1)] == [True, False]
    assert [is_likely(dropped, 9, 1.0, LEAST) for dropped in (9, 8)] == [True, False]


def test_of_many_numbers_a_few_standard_deviations_are_likely_and_many_are_not() -> None:
    count, rate = 10**9, 0.1
    deviation = (count * rate * (1 - rate)) ** 0.5
    for far, expected in ((0, True), (3, True), (5.5, True), (6.5, False), (20, False)):
        for side in (-1, 1):
            assert is_likely(round(count * rate + side * far * deviation), count, rate, LEAST) is expected
