#!/usr/bin/env python3
"""stand_ins.py COMPILER ARCHIVE: checks that what stands in for a part whose library is missing (no_part.cpp beside
part.cpp, in io/) defines all that the part defines. ARCHIVE has the parts that this build was made with; a part that it
lacks is not checked."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDES = ("io/src", "io/include", "pipeline/include", "kernels/include")


def defined_symbols(object_or_archive):
    """{member: its global functions and variables of halotap}; an object's member is ''."""
    listing = subprocess.run(
        ["nm", "-C", "-g", "--defined-only", str(object_or_archive)], check=True, capture_output=True, text=True
    ).stdout
    symbols = {}
    member = ""
    for line in listing.splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
            continue
        fields = line.split(" ", 2)
        if len(fields) == 3 and fields[1] in "TDBR" and fields[2].startswith("halotap::"):
            symbols.setdefault(member, set()).add(fields[2])
    return symbols


def missing(root, compiler, archive):
    """'no_part.cpp: name' for each that a stand-in lacks, and how many stand-ins were compared."""
    parts = defined_symbols(archive)
    lacking = []
    compared = 0
    for stand_in in sorted((root / "io").rglob("no_*.cpp")):
        part = parts.get(stand_in.name.removeprefix("no_") + ".o")
        if part is None:
            continue
        compared += 1
        with tempfile.TemporaryDirectory() as scratch:
            compiled = Path(scratch) / "stand_in.o"
            includes = [f"-I{root / folder}" for folder in INCLUDES]
            subprocess.run([compiler, "-std=c++20", *includes, "-c", str(stand_in), "-o", str(compiled)], check=True)
            own = defined_symbols(compiled).get("", set())
        lacking += [f"{stand_in.name}: {name}" for name in sorted(part - own)]
    return lacking, compared


if __name__ == "__main__":
    found, count = missing(ROOT, sys.argv[1], sys.argv[2])
    for line in found:
        print(line)
    print(f"{count} stand-ins compared, {len(found)} names missing")
    sys.exit(1 if found else 0)
