"""The levels of a case, the strictest first. Each level includes those before it."""

from typing import Literal

Level = Literal["core", "required", "recommended", "optional"]
LEVELS: tuple[Level, ...] = ("core", "required", "recommended", "optional")
