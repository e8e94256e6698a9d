#!/usr/bin/env python3
"""stand_ins_test.py COMPILER ARCHIVE: takes a function out of a stand-in in a copy of the tree and requires that to be
found."""

import sys
import unittest

from planted_tree import planted_tree
from stand_ins import missing

COMPILER, ARCHIVE = sys.argv.pop(1), sys.argv.pop(1)


class StandIns(unittest.TestCase):
    def test_finds_a_function_that_a_stand_in_lacks(self):
        with planted_tree({}) as root:
            _, compared = missing(root, COMPILER, ARCHIVE)
            if compared == 0:
                self.skipTest("this build has stand-ins only")
            stand_in = root / "io/src/record/no_wav_track.cpp"
            text = stand_in.read_text(encoding="utf-8")
            stand_in.write_text(text.replace("void WavTrack::check() const {}\n", ""), encoding="utf-8")
            found, _ = missing(root, COMPILER, ARCHIVE)
        self.assertEqual(found, ["no_wav_track.cpp: halotap::io::WavTrack::check() const"])


if __name__ == "__main__":
    unittest.main()
