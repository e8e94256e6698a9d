"""A copy of the project's sources to plant mistakes in."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kernels", "pipeline", "io", "apps", "tests", "bench")


@contextmanager
def planted_tree(plants):
    """Yields the root of a copy to which `plants`, {path: text}, were added, each at the end of its file."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        for folder in FOLDERS:
            if (ROOT / folder).is_dir():
                shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("data", "__pycache__"))
        for path, text in plants.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            with open(root / path, "a", encoding="utf-8") as file:
                file.write(text + "\n")
        yield root
