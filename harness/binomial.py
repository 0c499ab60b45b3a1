"""The binomial tail probability of a number of dropped elements, for the check `dropout` and its diagnosis."""


def smaller_tail(dropped: int, count: int, rate: float) -> float:
    """The smaller tail probability of the binomial distribution with `count` trials and probability `rate`.

    The lower tail is P(X ≤ dropped), the upper tail P(X ≥ dropped).
    """
    from scipy.special import bdtr, bdtrc  # scipy.stats has them too, but takes longer to import than a framework

    return float(min(bdtr(dropped, count, rate), bdtrc(dropped - 1, count, rate) if dropped else 1.0))
