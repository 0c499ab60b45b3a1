"""What a build may add to pyproject.toml. Both are told by the environment.

HATCH_BUILD_HOOK_ENABLE_CUSTOM=1: a wheel with every golden, for the tests of this project (tox.ini says it). Others get
the goldens that pyproject.toml does not exclude, and compute the rest when a run needs them.

CONFORM_REPOSITORY=https://… and CONFORM_REF: the public address and the tag that is published (release.yml says them).
An index shows README.md where no relative link leads anywhere.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<to>(?![a-z]+:|#)[^)\s]+)\)")


class EveryGolden(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        specs = Path(self.root) / "specs"
        build_data["force_include"].update(
            {
                str(path): f"encoder_conformance/_specs/{path.relative_to(specs)}"
                for path in specs.rglob("*.safetensors")
            }
        )


class Address(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository, ref = (os.environ.get(name) for name in ("CONFORM_REPOSITORY", "CONFORM_REF"))
        if repository and ref:
            text = LINK.sub(lambda link: _absolute(link, repository, ref), text)
            metadata["urls"] = {
                "Homepage": repository,
                "Documentation": f"{repository}/blob/{ref}/README.md#documentation",
                "Changelog": f"{repository}/blob/{ref}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _absolute(link: re.Match[str], repository: str, ref: str) -> str:
    shown = "raw" if link["picture"] else "blob"
    return f"{link['picture']}{link['text']}({repository}/{shown}/{ref}/{link['to']})"
