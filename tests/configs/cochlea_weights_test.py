"""The committed cochlea weights are those that make_weights.py makes, and filter as docs/cochlea.md says."""

import cmath
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "cochlea")
RATE_HZ = 48000.0


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    header_bytes = struct.unpack("<Q", content[:8])[0]
    data = content[8 + header_bytes :]
    result = {}
    for name, entry in json.loads(content[8 : 8 + header_bytes]).items():
        begin, end = entry["data_offsets"]
        result[name] = (entry["shape"], struct.unpack("<%df" % ((end - begin) // 4), data[begin:end]))
    return result


def erb_hz(frequency_hz):
    return 24.7 * (0.00437 * frequency_hz + 1.0)


def gain(taps, frequency_hz, dilation):
    """|H(f)| of y[t] = sum_k taps[k] x[t + (k - K + 1) dilation], by Horner's rule."""
    turn = cmath.exp(2j * math.pi * frequency_hz * dilation / RATE_HZ)
    total = 0j
    for tap in reversed(taps):
        total = total * turn + tap
    return abs(total)


def decibels(value):
    return 20.0 * math.log10(max(value, 1e-12))


def frequencies(first, last, count):
    return [first + (last - first) * i / (count - 1) for i in range(count)]


class CochleaWeights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tensors = read_safetensors(os.path.join(FOLDER, "weights.safetensors"))
        with open(os.path.join(FOLDER, "model.yaml")) as file:
            cls.centres_hz = [int(number) for number in re.findall(r'"(\d+) Hz"', file.read())]
        cls.antialias = cls.tensors["antialias.dw.weight"][1]
        shape, values = cls.tensors["gammatone.dw.weight"]
        taps = shape[2]
        cls.gammatone = [values[i * taps : (i + 1) * taps] for i in range(shape[0])]

    def cascade(self, channel, frequency_hz):
        """Gain from the sound to the band's signal before rectification."""
        return gain(self.antialias, frequency_hz, 1) * gain(self.gammatone[channel], frequency_hz, 4)

    def test_the_script_makes_the_committed_weights_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "again.safetensors")
            script = os.path.join(FOLDER, "make_weights.py")
            subprocess.run([sys.executable, script, path], check=True, stdout=subprocess.DEVNULL)
            again = read_safetensors(path)
        self.assertEqual(list(again), list(self.tensors))
        for name, (shape, values) in self.tensors.items():
            self.assertEqual(again[name][0], shape, name)
            # Mathematical libraries may differ in the last bit; a wrong formula differs far more.
            worst = max(abs(a - b) for a, b in zip(again[name][1], values))
            self.assertLess(worst, 1e-7, name)

    def test_channels_are_named_by_centre_frequencies_evenly_spaced_in_erb_rate(self):
        self.assertEqual(len(self.centres_hz), 32)
        self.assertEqual((self.centres_hz[0], self.centres_hz[-1]), (150, 5000))
        rates = [21.4 * math.log10(0.00437 * f + 1.0) for f in self.centres_hz]
        step = (rates[-1] - rates[0]) / 31
        for low, high in zip(rates, rates[1:]):
            self.assertAlmostEqual(high - low, step, delta=0.03 * step)  # centres are rounded to 1 Hz

    def test_antialias_passes_up_to_5_kHz_and_stops_from_7_kHz(self):
        for f in frequencies(0.0, 5000.0, 501):
            self.assertAlmostEqual(gain(self.antialias, f, 1), 1.0, delta=0.002)
        for f in frequencies(7000.0, 24000.0, 1701):
            self.assertLess(decibels(gain(self.antialias, f, 1)), -60.0)

    def test_every_band_peaks_at_its_centre_with_unit_gain(self):
        for channel, centre in enumerate(self.centres_hz):
            erb = erb_hz(centre)
            grid = frequencies(centre - erb, centre + erb, 201)
            peak = max(grid, key=lambda f: self.cascade(channel, f))
            self.assertAlmostEqual(peak / centre, 1.0, delta=0.02)
            self.assertAlmostEqual(self.cascade(channel, centre), 1.0, delta=0.02)
            self.assertLess(self.cascade(channel, peak), 1.02)

    def test_every_band_is_as_wide_as_the_gammatone_formula_says(self):
        # A 4th-order gammatone with b = 1.019 ERB is 0.886 ERB wide 3 dB below its peak: 2 b sqrt(2^(1/4) - 1).
        formula = 2.0 * 1.019 * math.sqrt(2.0 ** 0.25 - 1.0)
        self.assertAlmostEqual(formula, 0.8865, delta=0.0001)
        for channel, centre in enumerate(self.centres_hz):
            erb = erb_hz(centre)
            half = self.cascade(channel, centre) / math.sqrt(2.0)
            inside = [f for f in frequencies(centre - erb, centre + erb, 401) if self.cascade(channel, f) >= half]
            self.assertAlmostEqual((inside[-1] - inside[0]) / erb / formula, 1.0, delta=0.03, msg="%d Hz" % centre)

    def test_a_dilated_band_does_not_repeat_at_higher_frequencies(self):
        for channel, centre in enumerate(self.centres_hz):
            # The dilated filter has its pass band again around 12 kHz and 24 kHz.
            images = [12000.0 - centre, 12000.0 + centre, 24000.0 - centre]
            for f in images + frequencies(7000.0, 24000.0, 86):
                self.assertLess(decibels(self.cascade(channel, f)), -55.0, "%d Hz at %g Hz" % (centre, f))

    def test_the_envelope_is_a_low_pass_of_unit_gain_without_images(self):
        shape, values = self.tensors["smooth.dw.weight"]
        smooth = values[: shape[2]]
        self.assertTrue(values == smooth * 32)
        shape, values = self.tensors["envelope.dw.weight"]
        envelope = values[: shape[2]]
        self.assertTrue(values == envelope * 32)
        both = lambda f: gain(smooth, f, 1) * gain(envelope, f, 4)
        self.assertAlmostEqual(both(0.0), 1.0, delta=1e-6)
        self.assertAlmostEqual(decibels(both(131.0)), -3.0, delta=0.1)
        for f in frequencies(700.0, 24000.0, 1166):
            self.assertLess(decibels(both(f)), -40.0, "at %g Hz" % f)
        for f in frequencies(2000.0, 24000.0, 1101):
            self.assertLess(decibels(both(f)), -60.0, "at %g Hz" % f)

    def test_mixes_are_identities_and_the_fan_out_copies(self):
        identity = tuple(1.0 if i // 32 == i % 32 else 0.0 for i in range(32 * 32))
        for layer in ("gammatone", "smooth", "envelope"):
            self.assertTrue(self.tensors[layer + ".pw.weight"] == ([32, 32, 1], identity), layer)
        self.assertEqual(self.tensors["antialias.pw.weight"], ([1, 1, 1], (1.0,)))
        self.assertTrue(self.tensors["fan_out.pw.weight"] == ([32, 1, 1], (1.0,) * 32))

    def test_the_newest_tap_comes_last(self):
        # A gammatone rises fast and decays slowly, so its first moments are near the newest, last tap.
        for taps in self.gammatone:
            energy = [tap * tap for tap in taps]
            self.assertGreater(math.fsum(energy[len(energy) // 2 :]), 0.9 * math.fsum(energy))


if __name__ == "__main__":
    unittest.main()
