#!/usr/bin/env python3
"""Plants uses of the standard library in a copy of the tree and requires the scan to find those without their header."""

import unittest

from planted_tree import planted_tree
from std_headers import scan

PLANTS = {
    "kernels/src/planted_own.hpp": "#pragma once\n#include <cstdint>\n#include <cmath>",
    "kernels/src/cpu/planted.hpp": '#pragma once\n#include "planted_own.hpp"\n#include <string>',
    "io/include/halotap/io/planted.hpp": "#pragma once\n#include <optional>",
}

# In kernels/src/cuda/planted.cpp each; what is found there.
FOUND = {
    "std::uint8_t planted;": "std::uint8_t needs <cstdint>",
    "#include <vector>\nstd::vector<std::int64_t> planted;": "std::int64_t needs <cstdint>",
    "#include <stdint.h>\nstd::uint64_t planted;": "std::uint64_t needs <cstdint>",
    '#include "planted_none.hpp"\nstd::string planted;': "std::string needs <string>",
    "// #include <string>\nstd::string planted;": "std::string needs <string>",
    '#include <chrono>\nauto planted() { return std::this_thread::yield; }': "std::this_thread needs <thread>",
    'const char* planted = "//"; std::size_t a; std::string b;': "std::string needs <string>",
}
CLEAN = (
    "#include <cstdint>\nstd::uint8_t planted;",
    '#include "cpu/planted.hpp"\nstd::string planted(std::uint8_t);  // and no std::vector',
    '#include "halotap/io/planted.hpp"\nstd::optional<int> planted;',
    'const char* planted = "std::vector";',
    "std::a_name_that_the_table_lacks planted;",
)


class StdHeaders(unittest.TestCase):
    def scan_with(self, root, text):
        (root / "kernels/src/cuda/planted.cpp").write_text(text + "\n", encoding="utf-8")
        found, _ = scan(root)
        return found

    def test_finds_each_name_without_its_header(self):
        with planted_tree(PLANTS) as root:
            for text, complaint in FOUND.items():
                with self.subTest(text):
                    line = 1 + text.count("\n")
                    self.assertEqual(self.scan_with(root, text), [f"kernels/src/cuda/planted.cpp:{line}: {complaint}"])

    def test_takes_headers_that_ours_include_and_leaves_comments_and_literals_alone(self):
        with planted_tree(PLANTS) as root:
            for text in CLEAN:
                with self.subTest(text):
                    self.assertEqual(self.scan_with(root, text), [])


if __name__ == "__main__":
    unittest.main()
