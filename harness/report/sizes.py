"""Sizes in σ, in few characters."""


def format_sigma(sigma: float) -> str:
    """A size in σ in at most six characters."""
    if sigma < 9.995:
        return f"{sigma:.2f}"
    if sigma < 9999.5:
        return f"{sigma:.0f}"
    mantissa, _, exponent = f"{sigma:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
