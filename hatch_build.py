"""A wheel with every golden, for the tests of this project: HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 (tox.ini says it).

Others get the goldens that pyproject.toml does not exclude, and compute the rest when a run needs them.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EveryGolden(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        specs = Path(self.root) / "specs"
        build_data["force_include"].update(
            {
                str(path): f"encoder_conformance/_specs/{path.relative_to(specs)}"
                for path in specs.rglob("*.safetensors")
            }
        )
