"""The first step of one computation that is none of another's, by values."""

import numpy as np
import pytest

from encoder_conformance.blackbox.first_apart import first_apart
from encoder_conformance.blackbox.step_apart import what_it_computes
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.protocol.steps import TracedStep

X = np.random.default_rng(0).standard_normal((3, 5))
WEIGHT = np.random.default_rng(1).standard_normal((5, 5))


def call(*, shift: float = 0.0, turned: bool = False, noise: float = 0.0, fused: bool = False) -> TracedCall:
    """x → product → sum → tanh → y. `fused`: the product has no value of its own."""
    product = X @ WEIGHT
    made = product + 0.5 + shift
    values = {"product": product, "sum": made, "tanh": np.tanh(made), "y": np.tanh(made) * 2}
    if turned:
        values = {name: value.T for name, value in values.items()}
    values = {name: value * (1 + noise) for name, value in values.items()}
    names = ["product", "sum", "tanh", "y"]
    if fused:
        del values["product"]
    takes = dict(zip(names, [("x",), ("product", "bias"), ("sum",), ("tanh",)], strict=True))
    return TracedCall([TracedStep(value=name, made_by=f"makes {name}", takes=takes[name]) for name in names], values)


def test_the_step_after_the_last_that_both_have_is_named() -> None:
    found = first_apart(call(shift=1e-3), call(), call(noise=2**-24))
    assert found is not None
    assert found.made_by == "makes sum"
    assert found.alike == {"product": "makes product"}
    assert str(found) == "makes sum ('product', as makes product has it)"
    assert found.also == ": it gives what makes product makes plus 0.501, and makes sum that plus 0.5"


@pytest.mark.parametrize("mine", [call(), call(turned=True), call(noise=2**-24), call(fused=True)])
def test_the_same_in_another_order_of_axes_or_within_noise_is_not_apart(mine: TracedCall) -> None:
    assert first_apart(mine, call(), call(noise=2**-24)) is None


def test_of_a_narrow_file_the_noise_is_that_of_its_format() -> None:
    """By that of float32 its first step is none of the other's, whichever is wrong."""
    mine, narrow = call(shift=0.3, noise=2**-11), call(noise=-(2**-11))
    found = first_apart(mine, call(), narrow, "float16")
    assert found is not None
    assert found.made_by == "makes sum"
    assert first_apart(call(noise=2**-11), call(), narrow, "float16") is None


def test_what_the_other_spells_otherwise_is_right_where_it_leads_to_the_same() -> None:
    assert first_apart(call(), call(fused=True), call(fused=True, noise=2**-24)) is None


def numbered(values: dict[str, np.ndarray]) -> TracedCall:
    """A call whose values have no name but their place."""
    steps = [TracedStep(value=str(at), made_by=maker, takes=(str(at - 1),)) for at, maker in enumerate(values)]
    return TracedCall(steps, {str(at): value for at, value in enumerate(values.values())})


def test_a_call_in_float32_that_has_no_step_to_convert_is_aligned() -> None:
    """Without that a value is told by the noise of another one of its size, and whatever is that far off is right."""
    values = call().values
    right = numbered({"converts": X, **{f"makes {name}": value for name, value in values.items()}})
    narrow = numbered({f"makes {name}": value * (1 + 2**-24) for name, value in values.items()})
    found = first_apart(call(shift=1e-3), right, narrow)
    assert found is not None
    assert found.made_by == "makes sum"


@pytest.mark.parametrize("least", [-1e9, -3.4e38, -np.inf])
def test_numbers_that_hide_positions_leave_the_others_to_tell(least: float) -> None:
    """A noise in proportion to them is larger than everything else: whatever is of that size was the same."""
    hidden = np.arange(15).reshape(3, 5) % 5 > 2
    of_float64 = least if abs(least) < 1e30 or np.isinf(least) else np.finfo(np.float64).min

    def scores(*, hides: float, twice: bool, noise: float = 0.0) -> TracedCall:
        product = X @ WEIGHT
        masked = np.where(hidden, hides, product * (1 + twice) * (1 + noise))
        values = {"product": product, "masked": masked, "weights": np.exp(masked - masked.max(-1, keepdims=True))}
        takes = {"product": ("x",), "masked": ("product",), "weights": ("masked",)}
        steps = [TracedStep(value=name, made_by=f"makes {name}", takes=takes[name]) for name in values]
        return TracedCall(steps, values)

    right, narrow = (
        scores(hides=hides, twice=False, noise=noise) for hides, noise in ((of_float64, 0), (least, 2**-24))
    )
    found = first_apart(scores(hides=least, twice=True), right, narrow)
    assert found is not None
    assert found.made_by == "makes masked"
    assert first_apart(scores(hides=least, twice=False), right, narrow) is None


def test_from_the_first_on_nothing_is_the_others() -> None:
    other = TracedCall(call().steps, {name: value + 1.0 for name, value in call().values.items()})
    found = first_apart(call(), other, other)
    assert found is not None
    assert (found.made_by, dict(found.alike)) == ("makes product", {})


STEP = np.random.default_rng(2).standard_normal((3, 4, 6))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (STEP * -1.02, "-1.02 times {}"),
        (STEP + 0.25, "{} plus 0.25"),
        (STEP + np.arange(6.0), "{} plus a constant for each feature"),
        (STEP[..., [1, 0, 2, 3, 4, 5]], "{} with its axis 2 in another order"),
        (STEP[:, ::-1], "{} with its axis 1 in another order"),
        (STEP.astype(np.float16), "{} in float16"),
        (STEP * np.where(np.arange(4) == 2, 3.0, 1.0)[:, None], "{} but for 2 of the 4 along its axis 1"),
        (np.where(STEP > 2, np.nan, STEP), f"no number in {int((STEP > 2).sum())} of 72 places"),
        (np.where(STEP > 2, -1e9, STEP), f"{{}}, but {int((STEP > 2).sum())} of 72 places more are hidden"),
        (np.where(STEP > 2, -1e9, 2 * STEP), ""),
        (np.tanh(STEP), ""),
        (STEP[..., :5], ""),
    ],
)
def test_what_a_step_gives_in_the_place_of_another(found: np.ndarray, said: str) -> None:
    assert what_it_computes(found, STEP, 1e-6) == said


def test_what_is_hidden_in_another_place_is_told() -> None:
    found, right = (np.where(hides, least, STEP) for hides, least in ((STEP > 2, -1e9), (STEP < -1, -np.inf)))
    more, fewer = int((STEP > 2).sum()), int((STEP < -1).sum())
    said = f"{{}}, but {more} of 72 places more are hidden and {fewer} of 72 places fewer are hidden"
    assert what_it_computes(found, right, 1e-6) == said


@pytest.mark.parametrize("far", [12, 3])
def test_one_value_alike_far_behind_says_nothing_of_what_it_is_made_of(far: int) -> None:
    """As weights of attention that are nearly even. Nearer, the other may spell the steps before it otherwise."""

    def chain(shift: float, noise: float = 0.0) -> TracedCall:
        made = X + shift
        between = {f"makes {at}": np.tanh(made * (at + 1) / 9) for at in range(far)}
        values = {"makes x": X, **between, "makes even": 0.2 + 1e-12 * made, "makes y": 3 * made}
        return numbered({name: value * (1 + noise) for name, value in values.items()})

    found = first_apart(chain(1e-2), chain(0.0), chain(0.0, 2**-24))
    assert found is not None
    assert found.made_by == ("makes 0" if far > 10 else "makes y")


@pytest.mark.parametrize(("lost", "said"), [(np.nan, "NaN"), (np.inf, "an infinite number")])
def test_the_first_step_that_gives_no_number_is_named(lost: float, said: str) -> None:
    """Behind it nothing has numbers to tell it by."""
    mine = call(noise=2**-11)
    mine = TracedCall(mine.steps, {**mine.values, **{name: np.full((3, 5), lost) for name in ("tanh", "y")}})
    found = first_apart(mine, call(), call(noise=-(2**-11)), "float16")
    assert found is not None
    assert (found.made_by, found.computes) == ("makes tanh", f"it is the first to give {said}, in 15 of 15 places")
    assert first_apart(mine, mine, mine, "float16") is None, "the source has no number there, too"


def test_what_is_no_number_in_between_is_no_step_apart() -> None:
    """A softmax of a row that is hidden whole is NaN, and some spell out that it is then 0."""
    mine = call(noise=2**-24)
    mine = TracedCall(mine.steps, {**mine.values, "tanh": np.where(np.eye(3, 5) > 0, np.nan, mine.values["tanh"])})
    assert first_apart(mine, call(), call(noise=2**-24)) is None


def test_a_product_whose_bias_a_fused_node_adds_is_not_apart() -> None:
    """That node is, which computes something else; the product was named, 'plus a constant for each feature'."""
    bias, product = np.random.default_rng(2).standard_normal(5), X @ WEIGHT
    given = [TracedStep(value=name, made_by=f"given {name}", takes=(), given="parameter") for name in ("bias", "gain")]
    values = {"bias": bias, "gain": bias[::-1] * 2, "x": X}
    x = TracedStep(value="x", made_by="input", takes=(), given="input")

    def fused(times: float) -> TracedCall:
        steps = [
            TracedStep(value="product", made_by="makes product", takes=("x",)),
            TracedStep(value="y", made_by="makes y", takes=("product", "bias")),
        ]
        return TracedCall([*given, x, *steps], {**values, "product": product, "y": np.tanh(times * (product + bias))})

    def apart(noise: float) -> TracedCall:
        steps = [
            TracedStep(value="sum", made_by="makes sum", takes=("bias", "x")),
            TracedStep(value="y", made_by="makes y", takes=("sum",)),
        ]
        made = {"sum": product + bias, "y": np.tanh(product + bias)}
        return TracedCall([*given, x, *steps], {**values, **{name: one * (1 + noise) for name, one in made.items()}})

    found = first_apart(fused(1.5), apart(0.0), apart(2**-24))
    assert found is not None
    assert found.made_by == "makes y"
    assert first_apart(fused(1.0), apart(0.0), apart(2**-24)) is None
