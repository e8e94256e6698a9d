#!/usr/bin/env python3
"""Compiles every public header alone, seeing only its own folder's public headers and those of the folders below.

    public_headers.py COMPILER [ROOT]

Prints the compiler's words for each header that needs another one before it, and exits 1 when there is one.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Each folder's public headers reach the folders before it.
FOLDERS = ("kernels", "pipeline", "io")
FLAGS = ("-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")


def public_headers(root):
    """Every public header on disk as (folder, name as users include it)."""
    for folder in FOLDERS:
        include = Path(root) / folder / "include"
        for file in sorted(include.rglob("*")):
            if file.is_file():
                yield folder, file.relative_to(include).as_posix()


def compile_alone(compiler, root, folder, header):
    """Compiles a source that has nothing but this header, twice over; returns what the compiler says, '' when fine."""
    reached = FOLDERS[: FOLDERS.index(folder) + 1]
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "alone.cpp"
        source.write_text(f'#include "{header}"\n#include "{header}"\n', encoding="utf-8")
        include = [f"-I{Path(root) / name / 'include'}" for name in reached]
        run = subprocess.run(
            [compiler, *FLAGS, *include, str(source)], capture_output=True, text=True, check=False
        )
    return "" if run.returncode == 0 else run.stderr


def check(compiler, root):
    """The headers that do not compile alone, each with the compiler's words; and the number of headers."""
    headers = list(public_headers(root))
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(lambda item: compile_alone(compiler, root, *item), headers)
        return {name: words for (_, name), words in zip(headers, said) if words}, len(headers)


def main(arguments):
    compiler = arguments[0]
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).parents[2])
    failed, headers = check(compiler, root)
    for name, words in failed.items():
        print(f"{name} does not compile alone:\n{words}")
    print(f"{headers} public headers, {len(failed)} that do not compile alone")
    return 1 if failed or headers == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
