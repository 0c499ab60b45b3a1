"""How much a run prints."""

from typing import Literal

Verbosity = Literal["quiet", "usual", "verbose"]
