#!/usr/bin/env python3
"""Plants headers that do not stand alone in a copy of the tree and requires the check to find them.

    public_headers_test.py COMPILER
"""

import sys
import unittest

from planted_tree import planted_tree
from public_headers import check

compiler = "c++"

PLANTS = {
    # uses a name whose header it does not include
    "kernels/include/halotap/kernels/planted_needy.hpp": "#pragma once\nnamespace halotap { std::vector<int> planted(); }",
    # leans on a folder above
    "kernels/include/halotap/kernels/planted_upward.hpp": '#pragma once\n#include "halotap/pipeline/errors.hpp"',
    # does not bear being included twice
    "io/include/halotap/io/planted_twice.hpp": "namespace halotap { struct Planted {}; }",
}


class PublicHeaders(unittest.TestCase):
    def test_finds_each_header_that_does_not_stand_alone(self):
        with planted_tree(PLANTS) as root:
            failed, headers = check(compiler, root)
        self.assertEqual(sorted(failed), sorted(path.split("/include/")[1] for path in PLANTS))
        self.assertGreater(headers, len(PLANTS))


if __name__ == "__main__":
    compiler = sys.argv.pop(1)
    unittest.main()
