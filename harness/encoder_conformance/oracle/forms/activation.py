"""The activation of the feed-forward network (E-6, E-7, E-10, E-11, E-18), and the ones that it is mistaken for."""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only, left_on, pass_on
from encoder_conformance.oracle.forms.needs import GATED
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import Elementwise


def relu(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """max(x, 0), with slope 0 at 0 (E-6)."""
    return np.maximum(x, 0), lambda g: (np.where(x > 0, g, 0),)


def gelu(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """x · Φ(x), Φ(x) = (1 + erf(x/√2)) / 2 (E-7; Hendrycks and Gimpel, 2016)."""
    half, two = a.exact(0.5), a.exact(2.0)  # a power of two: no format rounds by it
    probability = half * a.add(a.exact(1.0), a.erf(a.divide(x, a.sqrt(two))))

    def pullback(g: Elementwise) -> ByOperands:
        root_two_pi = a.constant(np.sqrt(two * np.arctan2(a.exact(0.0), a.exact(-1.0))))  # arctan2(0, −1) is π
        density = a.divide(a.exp(-half * a.multiply(x, x)), root_two_pi)
        return (a.multiply(g, a.add(probability, a.multiply(x, density))),)

    return a.multiply(x, probability), pullback


def gelu_tanh(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (E-10; Hendrycks and Gimpel, 2016)."""
    half, one, three = a.exact(0.5), a.exact(1.0), a.exact(3.0)
    root = a.constant(np.sqrt(a.exact(2.0) / np.arctan2(a.exact(0.0), a.exact(-1.0))))  # arctan2(0, −1) is π
    cubic = a.constant(0.044715)
    square = a.multiply(x, x)
    inner = a.multiply(root, a.add(x, a.multiply(cubic, a.multiply(square, x))))
    tangent = a.tanh(inner)
    probability = half * a.add(one, tangent)

    def pullback(g: Elementwise) -> ByOperands:
        slope = a.multiply(root, a.add(one, a.multiply(three * cubic, square)))
        bend = half * a.multiply(a.subtract(one, a.multiply(tangent, tangent)), slope)
        return (a.multiply(g, a.add(probability, a.multiply(x, bend))),)

    return a.multiply(x, probability), pullback


def silu(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """x · sigmoid(x) (E-11; Elfwing, Uchibe and Doya, 2017, arXiv 1702.03118)."""
    return _by_sigmoid(a, x, x)


def quick_gelu(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """x · sigmoid(1.702 x) (E-18; Hendrycks and Gimpel, 2016)."""
    return _by_sigmoid(a, x, a.multiply(a.constant(1.702), x))


def _by_sigmoid(a: Arithmetic, x: Elementwise, inside: Elementwise) -> tuple[Elementwise, Pullback]:
    """x · sigmoid(y), sigmoid(y) = 1 / (1 + exp(−y)), where y, `inside`, is a multiple of x."""
    one = a.exact(1.0)
    with np.errstate(over="ignore"):  # exp(−y) may be infinite, and the quotient then is the 0 that it should be
        sigmoid = a.divide(one, a.add(one, a.exp(-inside)))

    def pullback(g: Elementwise) -> ByOperands:
        slope = a.add(one, a.multiply(inside, a.subtract(one, sigmoid)))
        return (a.multiply(g, a.multiply(sigmoid, slope)),)

    return a.multiply(x, sigmoid), pullback


def _sigmoid(a: Arithmetic, x: Elementwise) -> Elementwise:
    return a.exact(0.5) * a.add(a.exact(1.0), a.tanh(0.5 * x))


def gelu_quick(a: Arithmetic, x: Elementwise) -> Elementwise:
    """x · sigmoid(1.702 x)."""
    return a.multiply(x, _sigmoid(a, 1.702 * x))


def gelu_root_in_float32(a: Arithmetic, x: Elementwise) -> Elementwise:
    """GELU with 1/√2 as float32 holds it."""
    root = a.exact(float(np.float32(np.sqrt(0.5))))
    return a.multiply(x, a.exact(0.5) * a.add(a.exact(1.0), a.erf(a.multiply(x, root))))


def _ignoring_rate(form: Step) -> Step:
    """A form that takes the layer's rate of dropout and does nothing with it."""

    return lambda a, x, *, dropout: form(a, x)


LAYER: dict[str, Step] = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "quick_gelu": quick_gelu}
"""The activations that a layer may name."""

VARIANTS: dict[str, Step] = {
    **LAYER,
    "gelu-quick": forward_only(gelu_quick),
    "gelu-root-in-float32": forward_only(gelu_root_in_float32),
    "leaky-relu": forward_only(lambda a, x: np.where(x > 0, x, 0.01 * x)),  # torch's default
    "sigmoid": forward_only(_sigmoid),  # of a gate: GLU in the place of its variants
    "none": forward_only(lambda a, x: x),  # the activation forgotten
    "left-to-product": forward_only(lambda a, x: x),  # of a gate, whose product with the hidden features has it
}

AFTER: dict[str, Step] = {
    "standard": _ignoring_rate(pass_on),
    "relu": _ignoring_rate(relu),
    "gelu": _ignoring_rate(gelu),
    "dropout": forward_only(lambda a, x, *, dropout: left_on(a, x, "ffn_output", x.shape, dropout)),
}

ACTIVATION = Form(
    VARIANTS,
    {
        "relu": "maximum({0}, 0)",
        "gelu": "0.5 * {0} * (1 + erf({0} / sqrt(2)))",
        "gelu_tanh": "0.5 * {0} * (1 + tanh(sqrt(2 / pi) * ({0} + 0.044715 * {0} ** 3)))",
        "silu": "{0} * sigmoid({0})",
        "quick_gelu": "{0} * sigmoid(1.702 * {0})",
    },
    keeps={name: "what it makes" if name == "relu" else "what it reads" for name in LAYER},
    needs=dict.fromkeys(("sigmoid", "left-to-product"), (GATED,)),
    is_choice={"gelu-quick": "quick_gelu"},
)
AFTER_FFN = Form(AFTER, {"standard": "{0}"}, makes_no_tensor=True)
