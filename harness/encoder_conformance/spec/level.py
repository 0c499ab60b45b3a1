"""The words that options of commands have in common with the specification, which is not read for their help."""

from typing import Literal, get_args

Level = Literal["core", "required", "recommended", "optional"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The levels of a case, the strictest first. Each level includes those before it."""
DtypeName = Literal["float64", "float32", "bfloat16", "float16"]
DTYPES: tuple[DtypeName, ...] = get_args(DtypeName)
