"""A backend that somebody is writing: the honest fake under another name, with Keras' epsilon."""

import shutil
from pathlib import Path

HONEST = Path(__file__).parent / "honest"
ADAPTER = """
import runpy

Honest = runpy.run_path({honest!r})["Honest"]


class WrongEpsilon(Honest):
    def build(self, layer, *given, **more):
        return super().build({{**layer, "norm": {{**layer["norm"], "epsilon": 1e-3}}}}, *given, **more)


if __name__ == "__main__":
    from encoder_conformance import serve

    serve(WrongEpsilon())
"""


def wrong_backend(folder: Path) -> None:
    """Make this folder, whose name is the backend's."""
    shutil.copytree(HONEST, folder, ignore=shutil.ignore_patterns("*.log", "__pycache__"))
    manifest = folder / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("name: honest", f"name: {folder.name}", 1))
    (folder / "adapter.py").write_text(ADAPTER.format(honest=str(HONEST / "adapter.py")))
