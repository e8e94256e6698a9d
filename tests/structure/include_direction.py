#!/usr/bin/env python3
"""Checks every #include of the project against the table of docs/architecture.md.

    include_direction.py [ROOT]

Prints one line a forbidden include, `file:line: ...`, and exits 1 when there is one.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE_SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\b\s*(?:<([^>]+)>|"([^"]+)"|(\S.*))')

STANDARD = frozenset(
    """algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono cinttypes
    climits clocale cmath compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
    variant vector version
    assert.h errno.h float.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h""".split()
)
# Pure compute opens no file, starts no thread and reads no clock.
IMPURE = frozenset(
    """barrier chrono condition_variable csignal cstdio ctime filesystem fstream future iostream latch mutex semaphore
    shared_mutex stdio.h stop_token syncstream thread""".split()
)
SYSTEM = re.compile(r"(dirent|dlfcn|fcntl|poll|pthread|sched|signal|termios|time|unistd)\.h$|sys/[a-z]+\.h$")
SIMD = re.compile(r"hwy/|[a-z]*intrin\.h$|cpuid\.h$|arm_neon\.h$")
CUDA = re.compile(r"cuda|cub/|cute?/|cooperative_groups|nv[a-z]*\.h$|mma\.h$")
EIGEN = re.compile(r"Eigen/")
BOOST = re.compile(r"boost/")
YAML = re.compile(r"yaml-cpp/")
JSON = re.compile(r"nlohmann/")
SANITIZER = re.compile(r"sanitizer/")  # the compiler's own, to tell a sanitizer what a scope may do
CLI = re.compile(r"CLI/")
DEVICES = re.compile(r"(sndfile|soxr|zip|portaudio)\.h$|cairo/cairo[a-z-]*\.h$|cairo[a-z-]*\.h$")


@dataclass(frozen=True)
class Rule:
    public: tuple  # folders whose public headers may be included
    libraries: tuple = ()  # what else may be, besides the standard library
    standard: frozenset = STANDARD
    anything: bool = False  # tests and benchmarks look everywhere


RULES = {
    "kernels": Rule(public=("kernels",), libraries=(EIGEN, SIMD, CUDA), standard=STANDARD - IMPURE),
    "pipeline": Rule(public=("kernels", "pipeline"), libraries=(BOOST, YAML, SANITIZER, SYSTEM)),
    "io": Rule(public=("pipeline", "io"), libraries=(DEVICES, JSON, SYSTEM)),
    "apps": Rule(public=("pipeline", "io"), libraries=(CLI, JSON, SYSTEM)),
    "tests": Rule(public=(), anything=True),
    "bench": Rule(public=(), anything=True),
}


def owner_of_public_header(name):
    """The folder that publishes `halotap/...`: the two embedding headers at the top are the pipeline's."""
    parts = name.split("/")
    return parts[1] if len(parts) > 2 else "pipeline"


def resolve_in_project(root, file, name):
    """The project file that a quoted include of a private header means, or None."""
    folder = file.relative_to(root).parts[0]
    tries = [file.parent / name, root / folder / "src" / name, root / folder / name]
    # Wherever it lies, a file of the project is one: so that an include path set too wide hides nothing.
    tries += [root / name]
    tries += [root / other / "src" / name for other in RULES]
    tries += [root / other / name for other in RULES]
    for candidate in tries:
        resolved = candidate.resolve()
        if resolved.is_file() and resolved.is_relative_to(root):
            return resolved.relative_to(root)
    return None


def complaint(root, file, bracketed, quoted, other):
    """What is wrong with one include, or None."""
    path = file.relative_to(root)
    folder = path.parts[0]
    rule = RULES[folder]
    is_public = path.parts[1:2] == ("include",)
    if other is not None:
        return f"'{other.strip()}' cannot be checked: name the header"
    name = bracketed or quoted

    if name.startswith("halotap/"):
        owner = owner_of_public_header(name)
        if not rule.anything and owner not in rule.public:
            return f"{folder}/ may not include {owner}'s headers ('{name}')"
        if owner in RULES and not (root / owner / "include" / name).is_file():
            return f"'{name}' is no public header of {owner}/"
        return None

    inside = resolve_in_project(root, file, name) if quoted else None
    if inside is not None:
        target = inside.parts[0]
        if target in ("tests", "bench") and target != folder:
            return f"nobody includes {target}/ ('{name}')"
        if rule.anything:
            return None
        if target != folder:
            return f"{folder}/ may not include {target}'s private headers ('{name}')"
        if is_public:
            return f"a public header may not include a private one ('{name}')"
        return None

    if rule.anything or name in rule.standard:
        return None
    if is_public:
        return f"a public header may include only the standard library and halotap's own headers ('{name}')"
    if any(library.match(name) for library in rule.libraries):
        return None
    return f"{folder}/ may not include '{name}'"


def scan(root):
    """Every forbidden include under `root`, as lines of text, and the number of files looked at."""
    root = Path(root).resolve()
    found, files = [], 0
    for folder in RULES:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCE_SUFFIXES or not file.is_file():
                continue
            files += 1
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                include = INCLUDE.match(line)
                problem = include and complaint(root, file, *include.groups())
                if problem:
                    found.append(f"{file.relative_to(root)}:{number}: {problem}")
    return found, files


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).parents[2])
    found, files = scan(root)
    if files == 0:
        found = [f"{root}: no source file found"]
    print(*found, f"{files} files, {len(found)} forbidden includes", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
