#!/usr/bin/env python3
"""Checks that every test that a document names, as `Suite.Name`, is in the sources.

    named_tests.py [ROOT]
"""

import re
import sys
from pathlib import Path

NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
GOOGLE_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
STRUCTURE_TEST = re.compile(r"halotap_add_structure_test\((\w+)")


def tests_in(root):
    """Every test that the sources define, as `Suite.Name`."""
    found = set()
    for file in (root / "tests").rglob("*.cpp"):
        found.update(".".join(names) for names in GOOGLE_TEST.findall(file.read_text(encoding="utf-8")))
    structure = (root / "tests/structure/CMakeLists.txt").read_text(encoding="utf-8")
    found.update(f"Structure.{name}" for name in STRUCTURE_TEST.findall(structure))
    return found


def names_in(root):
    """Every test that the documents name, with the first of them that does."""
    found = {}
    for file in sorted([*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("bench/*.md")]):
        for name in NAMED.findall(file.read_text(encoding="utf-8")):
            found.setdefault(name, file.relative_to(root))
    return found


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).parents[2])
    named = names_in(root)
    missing = sorted(named.keys() - tests_in(root))
    for name in missing:
        print(f"{named[name]} names {name}, and there is no such test")
    print(f"{len(named)} tests named, {len(missing)} missing")
    return 1 if missing or not named else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
