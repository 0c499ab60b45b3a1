"""Portable tensors (rules P-1 to P-6, G-3): a second implementation, in plain Python from specs/README.md alone."""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from itertools import count, islice
from math import ldexp, prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from catalogue import of_every
from hypothesis import given, settings
from hypothesis import strategies as st
from products import daily

from encoder_conformance.oracle.golden.thinning import compared_tensors, kept_positions
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec import portable
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.masking import Blind
from encoder_conformance.spec.parameters import PARAMETER_NAMES
from encoder_conformance.spec.portable import Pattern

VECTORS = SPECS / "vectors" / "portable.json"
LAYERS, CASES = load().layers, load().with_golden
LARGE = 128
MAKES: dict[Pattern, Callable[[int], int]] = {
    "symmetric": lambda n: n,
    "gain": lambda n: 128 + n // 4,
    "offset": lambda n: 255 if n % 8 == 0 else 254,
    "raised": lambda n: 2**17 + n,
}
PATTERNS: tuple[Pattern, ...] = ("symmetric", "gain", "offset", "raised", "balanced")
NAMES = st.text(max_size=40)
repeatably = settings(deadline=None, derandomize=True)


def seed_of(name: str) -> int:
    state = 0xCBF29CE484222325
    for byte in name.encode("utf-8"):
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def outputs_of(name: str, at: Iterable[int] | None = None) -> Iterator[int]:
    """Those at these places, from 0 on; all, without end, if none are named."""
    start = seed_of(name)
    return (mixed((start + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in (count() if at is None else at))


@cache
def integers_of(name: str, wanted: int) -> tuple[int, ...]:
    return tuple((output >> 32) * 511 // 2**32 - 255 for output in islice(outputs_of(name), wanted))


def values_of(name: str, shape: tuple[int, ...], pattern: Pattern, exponent: int) -> list[float]:
    drawn, D = integers_of(name, prod(shape)), shape[-1]
    if pattern == "balanced":
        return [ldexp(n if i % D < D // 2 else -drawn[i - D // 2], exponent) for i, n in enumerate(drawn)]
    return [ldexp(MAKES[pattern](n), exponent) for n in drawn]


def drawn_as(name: str, shape: tuple[int, ...]) -> tuple[Pattern, int]:
    """The pattern and the exponent of a parameter (rules P-4 and P-5)."""
    if name.endswith("gain"):
        return "gain", -7
    if name.endswith(("embedding.weight", ".table")):
        return "symmetric", -7
    if name.endswith("weight"):
        return "symmetric", -7 - next(m for m in count() if 4**m >= shape[0])
    return "symmetric", -10


def ids_of(name: str, wanted: int, vocabulary: int) -> list[int]:
    return [(output >> 32) * vocabulary // 2**32 for output in islice(outputs_of(name), wanted)]


def positions_of(name: str, available: int, wanted: int) -> list[int]:
    if available <= wanted:
        return list(range(available))
    taken: dict[int, None] = {}
    drawn = ((output >> 32) * available // 2**32 for output in outputs_of(name))
    while len(taken) < wanted:
        taken[next(drawn)] = None
    return sorted(taken)


def same_bits(values: list[float], tensor: np.ndarray[Any, Any]) -> bool:
    return array("d", values).tobytes() == np.ascontiguousarray(tensor, dtype=np.float64).tobytes()


def shape_by_the_table(name: str, layer: Layer) -> tuple[int, ...]:
    D, F, attention = layer.d_model, layer.feed_forward.d_ff, layer.attention
    H, K = attention.num_heads, attention.kv_heads or attention.num_heads
    d = attention.head_dim or D // H
    wide = (
        {"query": d, "key": d, "value": d}
        if attention.projections == "shared_by_heads"
        else {"query": H * d, "key": K * d, "value": K * d}
    )
    if found := re.fullmatch(r"attention\.(query|key|value)\.(weight|bias)", name):
        size = wide[found[1]]
        fan_in = d if attention.projections == "shared_by_heads" else D
        return (fan_in, size) if found[2] == "weight" else (size,)
    if found := re.fullmatch(r"attention\.(query|key)_norm\.\w+", name):
        return (d if attention.qk_norm and attention.qk_norm.over == "head" else wide[found[1]],)
    shapes = {
        "attention.position_bias.table": (attention.position_bias.buckets if attention.position_bias else 0, H),
        **dict.fromkeys(("attention.appended_key.vector", "attention.appended_value.vector"), (K * d,)),
        "attention.output.weight": (H * d, D),
        "feed_forward.gate.weight": (D, F),
        "feed_forward.gate.bias": (F,),
        **{name: (rows, D) for name, rows in embedding_rows(layer).items()},
        "feed_forward.hidden.weight": (D, F),
        "feed_forward.hidden.bias": (F,),
        "feed_forward.output.weight": (F, D),
    }
    return shapes.get(name, (D,))


def embedding_rows(layer: Layer) -> dict[str, int]:
    """The tables of the second table of R-2 that a layer has → their rows."""
    if (embedding := layer.embedding) is None:
        return {}
    rows = {"embedding": embedding.vocabulary, "token_type_embedding": embedding.token_types}
    if embedding.position_table is not None:
        rows["position_embedding"] = embedding.position_table.rows
    return {f"{owner}.weight": size for owner, size in rows.items() if size is not None}


def has(name: str, layer: Layer) -> bool:
    """Clauses L-3 and R-2, of the last layer of a stack."""
    if name.endswith("embedding.weight"):
        return name in embedding_rows(layer)
    if layer.part == "attention" and not name.startswith("attention."):  # E-17
        return False
    attention, gated = layer.attention, layer.feed_forward.gated
    bias = attention.position_bias
    absent = {
        "final_norm": not layer.stack.final_norm,
        "attention.query_norm": attention.qk_norm is None,
        "attention.key_norm": attention.qk_norm is None,
        "attention.appended_key": attention.appended_key != "learned",
        "attention.appended_value": attention.appended_key != "learned",
        "attention.position_bias": bias is None or bias.buckets is None or layer.stack.shared_position_bias,
        "attention_output_norm": layer.norm.placement not in ("sandwich", "res_post"),
        "ffn_output_norm": layer.norm.placement not in ("sandwich", "res_post"),
        "layer_scale1": "attention" not in layer.layer_scale,
        "layer_scale2": "feed_forward" not in layer.layer_scale,
        "feed_forward.gate": not gated,
        "norm1": (not layer.norm.first and layer.stack.layers == 1) or layer.norm.placement == "res_post",
        "norm2": layer.parallel == "one_norm" or layer.norm.placement == "res_post",
        "embedding_norm": layer.embedding is None or not layer.embedding.norm,
    }
    if absent.get(name.rpartition(".")[0]):
        return False
    if name.endswith("shift"):
        own = attention.qk_norm if re.match(r"attention\.(query|key)_norm", name) else layer.norm
        return own.kind == "layer_norm" and own.shift
    if not name.endswith("bias"):
        return True
    if name.startswith("feed_forward"):
        return layer.feed_forward.bias and getattr(layer.feed_forward, f"{name.split('.')[1]}_bias") is not False
    if name == "attention.output.bias":
        return attention.output_bias
    return attention.qkv_bias and getattr(attention, f"{name.split('.')[1]}_bias") is not False


@cache
def vectors() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(VECTORS.read_text(encoding="utf-8"))
    return read


@of_every(vectors()["generators"])
def test_generator_vectors(vector: dict[str, Any]) -> None:
    name, seed, outputs = vector["name"], int(vector["seed"], 16), [int(output, 16) for output in vector["outputs"]]
    assert len(outputs) == len(vector["integers"]) == 8
    assert seed == seed_of(name) == portable.seed(name)
    assert outputs == list(islice(outputs_of(name), 8)) == portable.splitmix64(seed, 8).tolist()
    assert vector["integers"] == list(integers_of(name, 8)) == portable.integers(name, 8).tolist()


def test_vectors_hold_published_values_of_both_generators() -> None:
    """RFC 9923 gives FNV-1a of nothing and of "a"; the first outputs of SplitMix64 from 0 stand in many a library."""
    assert portable.seed("") == 0xCBF29CE484222325
    assert portable.seed("a") == 0xAF63DC4C8601EC8C
    assert portable.splitmix64(0, 3).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    names = [vector["name"] for vector in vectors()["generators"]]
    assert "" in names
    assert any(not name.isascii() for name in names)


@of_every(vectors()["tensors"])
def test_tensor_vectors(vector: dict[str, Any]) -> None:
    name, shape, pattern, exponent = (vector[key] for key in ("name", "shape", "pattern", "exponent"))
    assert len(vector["values"]) == prod(shape)
    assert same_bits(vector["values"], portable.tensor(name, tuple(shape), pattern, exponent))
    assert vector["values"] == values_of(name, tuple(shape), pattern, exponent)


def test_tensor_vectors_are_exact_decimal_fractions() -> None:
    """What stands in the file is the value itself, not the shortest decimal near it; every pattern is there."""
    exact = json.loads(VECTORS.read_text(encoding="utf-8"), parse_float=Fraction)
    assert {tensor["pattern"] for tensor in exact["tensors"]} == set(PATTERNS)
    for tensor in exact["tensors"]:
        whole = [value * Fraction(2) ** -tensor["exponent"] for value in tensor["values"]]
        assert all(Fraction(n).denominator == 1 for n in whole), tensor["name"]
        assert max(abs(n) for n in whole) <= (2**17 + 255 if tensor["pattern"] == "raised" else 255)


@of_every(vectors()["ids"])
def test_token_id_vectors(vector: dict[str, Any]) -> None:
    name, count, vocabulary = vector["name"], len(vector["ids"]), vector["vocabulary"]
    assert vector["ids"] == ids_of(name, count, vocabulary) == portable.ids(name, count, vocabulary).tolist()


def test_weight_exponent_vectors() -> None:
    for vector in vectors()["weight_exponents"]:
        fan_in, exponent = vector["in"], vector["exponent"]
        assert portable.weight_exponent(fan_in) == exponent
        m = -7 - exponent
        assert 4**m >= fan_in
        assert m == 0 or 4 ** (m - 1) < fan_in


@of_every(vectors()["positions"])
def test_position_vectors(vector: dict[str, Any]) -> None:
    arguments = vector["name"], vector["available"], vector["wanted"]
    assert vector["positions"] == positions_of(*arguments) == portable.positions(*arguments).tolist()


AROUND = ("embedding", "token_type_embedding", "position_embedding", "final_norm")
EACH_KIND = ("attention.query.weight", "norm2.shift")
"""A weight and a vector: likes are drawn alike."""


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.release)], ids=["small", "whole"])
@pytest.mark.parametrize("name", daily(EACH_KIND, PARAMETER_NAMES))
def test_every_parameter_of_every_layer_bit_for_bit(name: str, whole: bool) -> None:
    """Of a large one, which has a million elements: the first 2,000, and the last of each row."""
    for layer in sorted(LAYERS.values(), key=lambda layer: -layer.d_model):  # the largest first: it fills the cache
        stacked = layer.is_stack and not name.startswith(AROUND)
        last = f"layers.{layer.stack.layers - 1}.{name}" if stacked else name
        parameters = layer_parameters(layer, {})
        assert (last in parameters) is has(name, layer)
        if not has(name, layer):
            continue
        shape = shape_by_the_table(name, layer)
        made = parameters[last]
        assert made.shape == shape
        pattern, exponent = drawn_as(name, shape)
        if whole or layer.d_model < LARGE:
            assert same_bits(values_of(last, shape, pattern, exponent), made), layer.layer
        else:
            first, flat = 2000, made.ravel()
            assert same_bits(values_of(last, (first,), pattern, exponent)[: flat.size], flat[:first]), layer.layer
            ends = range(shape[-1] - 1, flat.size, shape[-1])
            numbers = [(output >> 32) * 511 // 2**32 - 255 for output in outputs_of(last, ends)]
            assert same_bits([ldexp(MAKES[pattern](n), exponent) for n in numbers], flat[ends]), layer.layer


@pytest.mark.release
@of_every(CASES.values())
def test_input_and_cotangent_of_every_case_bit_for_bit(case: Case) -> None:
    B, S, D = shape = case.situation.batch, case.situation.sequence, case.layer.d_model
    drawn = case.situation.input
    if not case.layer.takes_ids:
        x = case.x()
        assert x.shape == shape
        assert same_bits(values_of("x", shape, drawn.pattern, drawn.exponent), x)
    else:
        assert case.ids().shape == (B, S)
        vocabulary = case.layer.embedding.vocabulary
        if case.situation.given.padding == "ids":
            drawn_ids = [1 + number for number in ids_of("ids", B * S, vocabulary - 1)]
            valid = case.valid_keys().ravel()
            expected = [number if here else 0 for number, here in zip(drawn_ids, valid, strict=True)]
        else:
            expected = ids_of("ids", B * S, vocabulary)
        assert case.ids().ravel().tolist() == expected
    if (types := case.token_types()) is not None:
        assert types.shape == (B, S)
        assert types.ravel().tolist() == ids_of("token_types", B * S, case.layer.embedding.token_types)
    if (memory := case.memory()) is not None:  # E-17
        assert case.situation.memory is not None
        of_keys = B, case.situation.memory.sequence, D
        assert memory.shape == of_keys
        assert same_bits(values_of("memory", of_keys, drawn.pattern, drawn.exponent), memory)
    expected = values_of("cotangent", shape, "symmetric", -7)
    valid, attention = case.situation.valid, case.situation.mask.attention
    if memory is not None:  # padding is the memory's
        valid = ((True,) * S,) * B
    unsaid = (
        case.layer.attention.fully_masked_row == "unspecified" and not case.layer.attention.appended_key
    )  # M-4, E-44
    blind = attention.queries if isinstance(attention, Blind) and unsaid else [()] * B
    items = range(B) if case.situation.items is None else case.situation.items  # G-5
    for b, s in [(b, s) for b in range(B) for s in range(S) if not valid[b][s] or s in blind[b] or b not in items]:
        expected[(b * S + s) * D : (b * S + s + 1) * D] = [0.0] * D
    assert same_bits(expected, case.cotangent(np.zeros((0, 2), dtype=np.int64)))


@of_every((0, 1, portable.PART, portable.PART + 1, 2 * portable.PART + 3))
def test_numbers_drawn_in_parts_are_those_of_the_whole(size: int) -> None:
    whole = portable.splitmix64(7, size).astype(np.float64) * 2.0**-63 - 1.0
    assert np.array_equal(portable.uniform(7, size, 0.25), whole * 0.25)


@of_every(("symmetric", "gain", "offset"), (0, 1, portable.PART, portable.PART + 1, 2 * portable.PART + 3))
def test_parts_are_the_tensor(pattern: Pattern, size: int) -> None:
    found = list(portable.parts("in parts", (size,), pattern, -7))
    assert max((part.size for part in found), default=0) <= portable.PART
    assert sum(part.size for part in found) == size
    ends = [at for at in range(size) if min(at, size - at, abs(at - portable.PART), abs(at - 2 * portable.PART)) < 3]
    drawn = [(output >> 32) * 511 // 2**32 - 255 for output in outputs_of("in parts", ends)]
    values = np.concatenate([np.empty(0), *found])
    assert same_bits([ldexp(MAKES[pattern](n), -7) for n in drawn], values[ends])
    assert same_bits(values.tolist(), portable.tensor("in parts", (size,), pattern, -7))


SCALED = {(case.layer.layer, *sorted(case.situation.parameter_exponents.items())): case for case in CASES.values()}
"""Layer and exponents, on which alone a case's parameters depend → one case that has them."""


@pytest.mark.release
@of_every(SCALED.values())
def test_parameter_exponents_multiply_by_that_power_of_two(case: Case) -> None:
    moved, plain = case.parameters(), layer_parameters(case.layer, {})
    for name, value in moved.items():
        exponent = case.situation.parameter_exponents.get(name, 0)
        assert np.array_equal(value, plain[name] * 2.0**exponent), name


@pytest.mark.release
@of_every(CASES.values())
def test_kept_positions_of_every_golden_tensor(case: Case) -> None:
    kept_whole = sampled = 0
    for key, (shape, compared) in compared_tensors(case).items():
        available = np.flatnonzero(compared).tolist()
        if key == "output" and prod(shape) <= 1024:
            expected, kept_whole = available, kept_whole + 1
        else:
            drawn = positions_of(f"positions {case.id} {key}", len(available), 128)
            expected, sampled = [available[i] for i in drawn], sampled + 1
        assert kept_positions(case, key, shape, compared, constants()).tolist() == expected, key
    assert kept_whole + sampled == len(compared_tensors(case)) > 0


@pytest.mark.release
def test_every_value_is_exact_in_every_dtype() -> None:
    tensors = [value for case in SCALED.values() for value in case.parameters().values()]
    for case in CASES.values():
        inputs = [case.x()] if case.layer.embedding is None else []  # ids are integers everywhere
        tensors += [*inputs, case.cotangent(np.zeros((0, 2), dtype=np.int64))]
    for values in tensors:
        once = np.unique(values)
        for dtype in (ml_dtypes.bfloat16, np.float16, np.float32):
            assert np.array_equal(once.astype(dtype).astype(np.float64), once), dtype


@pytest.mark.release
@of_every(LAYERS.values())
def test_no_weight_matrix_is_symmetric_and_none_is_another(layer: Any) -> None:
    drawn = layer_parameters(layer, {})
    weights = {name: value for name, value in drawn.items() if value.ndim == 2 and not name.endswith("table")}
    for name, value in weights.items():
        if value.shape[0] == value.shape[1]:
            assert (value == value.T).mean() < 1 / len(value) + 0.1, name  # those of the diagonal are their own
    assert (
        len({value.tobytes() for value in weights.values()})
        == len(weights)
        == (4 if layer.part == "attention" else 6 + layer.feed_forward.gated) * layer.stack.layers
        + len(embedding_rows(layer))
    )


@of_every(LAYERS.values())
def test_gains_biases_and_shifts_are_not_trivial(layer: Any) -> None:
    for name, value in layer_parameters(layer, {}).items():
        if name.endswith("gain"):
            assert value.std() > 0.1, name
            assert value.min() > 0, name
        else:
            assert np.count_nonzero(value) > 0.95 * value.size, name
            assert value.min() < 0 < value.max(), name


@of_every(CASES.values())
def test_no_two_sizes_are_equal_by_chance(case: Case) -> None:
    layer = case.layer
    assert case.situation.batch != case.situation.sequence
    assert layer.d_model != layer.feed_forward.d_ff
    if layer.family == "small":  # the published 512/8/2048 is not free
        assert layer.attention.num_heads != layer.head_dim


@repeatably
@given(name=NAMES, wanted=st.integers(0, 100), pattern=st.sampled_from(PATTERNS), exponent=st.integers(-24, 24))
def test_any_name_and_count(name: str, wanted: int, pattern: Pattern, exponent: int) -> None:
    assert portable.seed(name) == seed_of(name)
    assert tuple(portable.integers(name, wanted)) == integers_of(name, wanted)
    assert all(-255 <= n <= 255 for n in integers_of(name, wanted))
    shape = (wanted, 2) if pattern == "balanced" else (wanted,)
    assert same_bits(values_of(name, shape, pattern, exponent), portable.tensor(name, shape, pattern, exponent))


@repeatably
@given(name=NAMES, rows=st.integers(1, 5), half=st.integers(1, 40))
def test_a_balanced_row_has_the_mean_0_exactly(name: str, rows: int, half: int) -> None:
    made = portable.tensor(name, (rows, 2 * half), "balanced", -7)
    drawn = portable.tensor(name, (rows, 2 * half), "symmetric", -7)
    assert np.array_equal(made[:, :half], drawn[:, :half])
    assert np.array_equal(made[:, half:], -drawn[:, :half])
    assert not made.sum(axis=-1).any()


def test_what_has_no_halves_cannot_be_balanced() -> None:
    with pytest.raises(ValueError, match="5 long"):
        portable.tensor("x", (2, 5), "balanced", 0)


@repeatably
@given(name=NAMES, shape=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)))
def test_tensors_are_filled_in_row_major_order(name: str, shape: tuple[int, int, int]) -> None:
    made = portable.tensor(name, shape, "symmetric", 0)
    flat = integers_of(name, prod(shape))
    for a, b, c in np.ndindex(*shape):
        assert made[a, b, c] == flat[(a * shape[1] + b) * shape[2] + c]


@repeatably
@given(name=NAMES, available=st.integers(0, 2000), wanted=st.integers(0, 300))
def test_positions_of_any_name(name: str, available: int, wanted: int) -> None:
    found = portable.positions(name, available, wanted).tolist()
    assert found == positions_of(name, available, wanted)
    assert len(set(found)) == min(available, wanted)


@repeatably
@given(fan_in=st.integers(1, 10**6))
def test_weight_exponent_of_any_size(fan_in: int) -> None:
    m = -7 - portable.weight_exponent(fan_in)
    assert 4**m >= fan_in > (4**m) // 4 or fan_in == 1
