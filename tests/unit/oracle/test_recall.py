"""A play recalls what steps gave before: it gives the same bits as one that recalls nothing, in whatever order."""

from itertools import permutations

import numpy as np
import pytest
from products import daily

from encoder_conformance.judging.simulate import Player, simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.load import load

CASE = load().cases["pre-gelu/padding-right"]
OTHERS = "post-relu/alibi-padding", "pre-gelu/mask-per-head", "post-gelu/causal", "pre-rms-silu/padding-right"
EXACT = ("residual2-from-normed", "value-bias-missing", "heads-by-reshape", "mask-inverted", "norm-eps-1e-3")


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def alike(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """The same but for the last bits: where query and key are one array NumPy makes their product another way."""
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=1e-11, atol=1e-12, equal_nan=True) for name in one
    )


def test_a_play_gives_the_same_bits_whatever_was_played_before() -> None:
    player = Player(CASE, {})
    for first, second in permutations([catalogue()[name] for name in EXACT], 2):
        for deviations in ([first], [first, second]):
            assert same(player.play(deviations), simulate(CASE, deviations)), [each.deviation for each in deviations]


@pytest.mark.parametrize("case", daily(("post-relu/alibi-padding",), OTHERS))
@pytest.mark.parametrize("is_seen", [False, pytest.param(True, marks=pytest.mark.release)], ids=["unseen", "seen"])
def test_a_play_goes_on_from_an_earlier_one_with_the_same_bits(case: str, is_seen: bool) -> None:
    of = load().cases[case]
    seen = {name: 1.001 * value for name, value in simulate(of, []).items()} if is_seen else {}
    player, every = Player(of, seen), [each for each in catalogue().values() if changes(of, each)]
    player.play([])
    for number, deviation in enumerate(every):
        assert same(player.play([deviation]), Player(of, seen).play([deviation])), deviation.deviation
        pair = [every[number // 2], deviation]
        assert alike(player.play(pair), Player(of, seen).play(pair)), [each.deviation for each in pair]


@pytest.mark.parametrize("name", ["linear-in-bfloat16", "softmax-in-float32", "dropout-left-on"])
def test_what_is_left_to_chance_is_drawn_anew_each_time(name: str) -> None:
    """Its centre is played, too, where something else beside it drops."""
    noisy, player = [catalogue()[name]], Player(CASE, {})
    fresh = Player(CASE, {}).draws(noisy)
    player.play(noisy)
    drawn = player.draws(noisy)
    assert len(drawn) == len(fresh)
    assert all(same(*each) for each in zip(drawn, fresh, strict=True))
