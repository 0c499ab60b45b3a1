"""Programs of this project's maintainers, in a checkout: `python -m tools --help`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
