"""How likely a number of dropped elements is: what dropout is judged by, and what a diagnosis believes it by."""


def smaller_tail(dropped: int, count: int, rate: float) -> float:
    """The probability that so few of `count` elements are dropped, each with probability `rate`, or that so many are:
    the smaller of the binomial distribution's two tails."""
    from scipy.special import bdtr, bdtrc  # scipy.stats has them too, and takes longer to import than a framework

    return float(min(bdtr(dropped, count, rate), bdtrc(dropped - 1, count, rate) if dropped else 1.0))
