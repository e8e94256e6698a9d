#!/usr/bin/env python3
"""Plants each kind of forbidden include in a copy of the tree and requires the scan to find exactly that one."""

import unittest

from include_direction import scan
from planted_tree import planted_tree

KERNELS = "kernels/include/halotap/kernels/layer.hpp"
PIPELINE = "pipeline/include/halotap/pipeline/engine.hpp"
IO = "io/include/halotap/io/source.hpp"

# Files to plant in are new ones, so that the test does not depend on what the folders hold today.
FORBIDDEN = {
    "kernels include pipeline": ("kernels/src/planted.cpp", '#include "halotap/pipeline/engine.hpp"'),
    "kernels include io": ("kernels/src/cpu/planted.cpp", '#include "halotap/io/source.hpp"'),
    "kernels open files": ("kernels/src/planted.cpp", "#include <fstream>"),
    "kernels start threads": ("kernels/src/planted.cpp", "#include <thread>"),
    "kernels read clocks": ("kernels/src/planted.cpp", "#include <chrono>"),
    "kernels call the system": ("kernels/src/planted.cpp", "#include <unistd.h>"),
    "kernels read YAML": ("kernels/src/planted.cu", "#include <yaml-cpp/yaml.h>"),
    "kernels use Boost": ("kernels/src/planted.cuh", "#include <boost/lockfree/spsc_queue.hpp>"),
    "pipeline includes io": ("pipeline/src/planted.cpp", '#include "halotap/io/sink.hpp"'),
    "pipeline includes a device library": ("pipeline/src/planted.cpp", "#include <portaudio.h>"),
    "pipeline includes CUDA": ("pipeline/src/planted.cpp", "#include <cuda_runtime.h>"),
    "pipeline includes SIMD": ("pipeline/src/planted.cpp", '#include "hwy/highway.h"'),
    "pipeline includes private kernels": ("pipeline/src/planted.cpp", '#include "../../kernels/src/planted.hpp"'),
    "pipeline includes private kernels by a wide path": ("pipeline/src/planted.cpp", '#include "planted.hpp"'),
    "io includes kernels": ("io/src/planted.cpp", '#include "halotap/kernels/stack.hpp"'),
    "io includes kernels in brackets": ("io/src/planted.cpp", "#  include <halotap/kernels/stack.hpp>"),
    "io includes private pipeline": ("io/src/planted.cpp", '#include "../../pipeline/src/planted_ring.hpp"'),
    "pipeline includes a JSON library": ("pipeline/src/planted.cpp", "#include <nlohmann/json.hpp>"),
    "io reads YAML": ("io/src/planted.cpp", "#include <yaml-cpp/yaml.h>"),
    "apps include kernels": ("apps/halotap/planted.cpp", '#include "halotap/kernels/executor.hpp"'),
    "apps include private io": ("apps/halotap/planted.cpp", '#include "io/src/address.hpp"'),
    "apps include a device library": ("apps/halotap/planted.cpp", "#include <sndfile.h>"),
    "a source includes tests": ("io/src/planted.cpp", '#include "tests/planted_support.hpp"'),
    "a source includes bench": ("apps/halotap/planted.cpp", '#include "bench/planted_bench.hpp"'),
    "tests include bench": ("tests/planted.cpp", '#include "bench/planted_bench.hpp"'),
    "a public header includes Eigen": (KERNELS, "#include <Eigen/Core>"),
    "a public header includes nlohmann": (PIPELINE, "#include <nlohmann/json.hpp>"),
    "a public header includes a device library": (IO, "#include <sndfile.h>"),
    "a public header calls the system": (IO, "#include <unistd.h>"),
    "a public header includes a private one": (IO, '#include "planted_private.hpp"'),
    "an include of nothing": ("io/src/planted.cpp", '#include "halotap/io/no_such_header.hpp"'),
    "an include behind a macro": ("io/src/planted.cpp", "#include PLANTED_HEADER"),
}

ALLOWED = {
    "kernels/src/planted.hpp": "#include <Eigen/Core>",
    "kernels/src/cpu/planted.cpp": '#include "hwy/highway.h"\n#include "planted.hpp"\n#include <immintrin.h>',
    "kernels/src/cuda/planted.cu": "#include <cuda_runtime.h>",
    "pipeline/src/planted_ring.hpp": "#include <boost/lockfree/spsc_queue.hpp>\n#include <chrono>",
    "pipeline/src/planted.cpp": '#include "planted_ring.hpp"\n#include "halotap/kernels/stack.hpp"\n#include <fcntl.h>',
    "io/src/planted_private.hpp": '#include "halotap/pipeline/pipeline.hpp"',
    "io/src/planted/planted.cpp": '#include "planted_private.hpp"\n#include <sndfile.h>\n#include <sys/stat.h>',
    "apps/halotap/planted.cpp": '#include "halotap/io/session.hpp"\n#include <CLI/CLI.hpp>\n#include <nlohmann/json.hpp>',
    "bench/planted_bench.hpp": '#include "kernels/src/planted.hpp"',
    "tests/planted_support.hpp": '#include "pipeline/src/planted_ring.hpp"\n#include <gtest/gtest.h>',
}


class IncludeDirection(unittest.TestCase):
    def test_allows_what_the_table_allows(self):
        with planted_tree(ALLOWED) as root:
            found, files = scan(root)
        self.assertEqual(found, [])
        self.assertGreater(files, len(ALLOWED))

    def test_finds_each_forbidden_include(self):
        with planted_tree(ALLOWED) as root:
            for name, (path, line) in FORBIDDEN.items():
                with self.subTest(name):
                    file = root / path
                    before = file.read_text(encoding="utf-8") if file.exists() else None
                    file.write_text(f"{before or ''}{line}\n", encoding="utf-8")
                    found, _ = scan(root)
                    if before is None:
                        file.unlink()
                    else:
                        file.write_text(before, encoding="utf-8")
                    self.assertEqual(len(found), 1, found)
                    self.assertTrue(found[0].startswith(f"{path}:"), found)


if __name__ == "__main__":
    unittest.main()
