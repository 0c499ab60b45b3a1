"""How far a hypothesis is from what was seen, stage by stage."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.judge.observation import Array


@dataclass(frozen=True)
class Errors:
    """In σ, an entry a stage: rms and max of observed − predicted, rms of predicted − right (`moved`), and of how far
    the predicted itself scatters. `touched`: the hypothesis changes anything there. `along` and `length` are the inner
    products, over all stages, of predicted − right with observed − right and with itself. Of what is predicted in size
    only, `came_true` and `refuted` are the stages where what it predicts beside that was seen to be so, or not."""

    rms: Array
    max: Array
    moved: Array
    scatter: Array
    touched: npt.NDArray[np.bool_]
    along: float
    length: float
    came_true: frozenset[str] = frozenset()
    refuted: frozenset[str] = frozenset()
