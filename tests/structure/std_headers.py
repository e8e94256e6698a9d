#!/usr/bin/env python3
"""Checks that a file which uses a name of the standard library reaches a header that has it.

    std_headers.py [ROOT]

Standard headers bring each other along as a compiler's version pleases, so only those count that a file names, or a
header of ours that it includes. Prints one line a name that is missing, `file:line: ...`, and exits 1 when there is one.
A name that the table lacks is not looked at.
"""

import re
import sys
from pathlib import Path

from include_direction import RULES, SOURCE_SUFFIXES

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
USE = re.compile(r"\bstd::(\w+)")
# The literal first, for it may hold what begins a comment.
NO_CODE = re.compile(r'"(?:\\.|[^"\\])*"|//.*')

# Names by the header that is to be included for them.
NAMES = {
    "algorithm": """all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if find_if_not is_sorted
        lower_bound max max_element min min_element minmax none_of nth_element reverse shuffle sort transform
        upper_bound""",
    "array": "array",
    "atomic": """atomic atomic_ref memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release
        memory_order_seq_cst""",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount",
    "bitset": "bitset",
    "charconv": "chars_format from_chars to_chars",
    "chrono": "chrono chrono_literals",
    "cmath": """ceil copysign cos erf erfc exp exp2 expm1 fabs floor fma fmod frexp hypot ilogb isfinite isinf isnan
        isnormal ldexp llround log log10 log2 lround nan nanf nearbyint nextafter pow round signbit sin sqrt tanh""",
    "complex": "complex",
    "condition_variable": "condition_variable",
    "cstddef": "byte ptrdiff_t to_integer",
    "cstdint": "int8_t int16_t int32_t int64_t intptr_t uint8_t uint16_t uint32_t uint64_t uintmax_t uintptr_t",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fread fwrite printf rename rewind snprintf tmpfile",
    "cstdlib": "abort aligned_alloc atol exit free getenv malloc strtod strtoll",
    "cstring": "memcmp memcpy memmove memset strcmp strerror strlen strncmp strncpy",
    "deque": "deque",
    "exception": "current_exception exception_ptr rethrow_exception terminate",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "function greater hash plus",
    "future": "async future promise",
    "iomanip": "setfill setprecision setw",
    "iostream": "cerr cin clog cout",
    "iterator": "istreambuf_iterator",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag scoped_lock timed_mutex unique_lock",
    "new": "align_val_t bad_alloc nothrow",
    "numbers": "numbers",
    "numeric": "accumulate gcd iota lcm",
    "optional": "make_optional nullopt optional",
    "random": """exponential_distribution mt19937 mt19937_64 normal_distribution uniform_int_distribution
        uniform_real_distribution""",
    "regex": "regex regex_match regex_replace regex_search smatch sregex_iterator",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "domain_error invalid_argument length_error logic_error out_of_range overflow_error runtime_error",
    "stop_token": "stop_source stop_token",
    "string": "getline stod stoi stol stoll stoul string to_string",
    "string_view": "string_view",
    "system_error": "error_code generic_category system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "tie tuple",
    "type_traits": """conditional_t decay_t enable_if_t is_const_v is_null_pointer_v is_same_v is_trivially_copyable_v
        remove_const_t remove_cvref_t remove_pointer_t remove_reference_t underlying_type_t""",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const exchange forward index_sequence make_index_sequence make_integer_sequence move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}


class Tree:
    """The sources under a root, by path relative to it."""

    def __init__(self, root):
        files = (file for folder in RULES for file in (root / folder).rglob("*") if file.suffix in SOURCE_SUFFIXES)
        self.texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}
        self.includes = {path: set(INCLUDE.findall(text)) for path, text in self.texts.items()}
        # By each name that an include may have for a file: its path, and that without some of the first folders.
        self.named = {}
        for path in self.texts:
            parts = path.split("/")
            for first in range(len(parts)):
                self.named.setdefault("/".join(parts[first:]), path)

    def ours(self, path):
        """The files of ours that one includes: beside it, or wherever include paths lead."""
        for name in self.includes[path]:
            beside = f"{path.rpartition('/')[0]}/{name}"
            if beside in self.texts or name in self.named:
                yield beside if beside in self.texts else self.named[name]

    def headers(self, path):
        """What a file includes, and what ours of these do."""
        found = [path]
        for file in found:
            found += set(self.ours(file)).difference(found)
        return set().union(*(self.includes[file] for file in found))


def uses(text):
    """Every name that a source takes out of std, with the line in which it first does."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if "std::" in line:
            for name in USE.findall(NO_CODE.sub("", line)):
                found.setdefault(name, number)
    return found


def scan(root):
    """Every name without its header under `root`, as lines of text, and the number of files looked at."""
    tree = Tree(Path(root).resolve())
    found = []
    for path, text in tree.texts.items():
        headers = tree.headers(path)
        for name, number in uses(text).items():
            header = HEADER_OF.get(name)
            if header is not None and header not in headers:
                found.append(f"{path}:{number}: std::{name} needs <{header}>")
    return found, len(tree.texts)


def main(arguments):
    found, files = scan(arguments[0] if arguments else Path(__file__).parents[2])
    if files == 0:
        found = ["no source file found"]
    print(*found, f"{files} files, {len(found)} names without their header", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
