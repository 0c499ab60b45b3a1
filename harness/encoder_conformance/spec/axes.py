"""Types of arrays that say their axes, as jaxtyping writes them; a type checker reads each of them as `Array`.

The letters are those of the stages (`spec/stages.py`): B items, S queries, T keys, H heads, d features of a head,
D features of the model, F hidden units, R buckets, V tokens, U types of tokens, L rows of positions. K and M are the
sizes of a linear map [K, M], P the compared positions of a tensor; "..." is any axes, "*shape" the one shape of all
arrays of a signature, up to broadcasting, and "*reduced" that shape without some axes, or with 1 in their place.
"""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of whatever shape and dtype."""
Bools = npt.NDArray[np.bool_]

BS = Annotated[Array, "B S"]
BSD = Annotated[Array, "B S D"]
BSF = Annotated[Array, "B S F"]
BSA = Annotated[Array, "... S A"]
"""A: the axes of positions."""
BHSd = Annotated[Array, "B H S d"]
BHTd = Annotated[Array, "B H T d"]
BHST = Annotated[Array, "B H S T"]
SD = Annotated[Array, "S D"]
ST = Annotated[Array, "S T"]
RH = Annotated[Array, "R H"]
VD = Annotated[Array, "V D"]
LD = Annotated[Array, "L D"]
UD = Annotated[Array, "U D"]
D = Annotated[Array, "D"]
Rows = Annotated[Array, "... K"]
Mapped = Annotated[Array, "... M"]
KM = Annotated[Array, "K M"]
M = Annotated[Array, "M"]
Reduced = Annotated[Array, "*reduced"]
P = Annotated[Array, "P"]
Elementwise = Annotated[Array, "*shape"]
