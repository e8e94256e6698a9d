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


def response(taps, frequency_hz, dilation):
    """H(f) of y[t] = sum_k taps[k] x[t + (k - K + 1) dilation], by Horner's rule."""
    turn = cmath.exp(-2j * math.pi * frequency_hz * dilation / RATE_HZ)
    total = 0j
    for tap in taps:
        total = total * turn + tap
    return total


def gain(taps, frequency_hz, dilation):
    return abs(response(taps, frequency_hz, dilation))


def decibels(value):
    return 20.0 * math.log10(max(value, 1e-12))


def frequencies(first, last, count):
    return [first + (last - first) * i / (count - 1) for i in range(count)]


def formula_gain(centre_hz, frequency_hz):
    """|G(f)| of the gammatone t^3 exp(-2 pi b t) cos(2 pi centre t), scaled to 1 at its centre."""
    b = 1.019 * erb_hz(centre_hz)
    both = lambda f: (b + 1j * (f - centre_hz)) ** -4 + (b + 1j * (f + centre_hz)) ** -4
    return abs(both(frequency_hz) / both(centre_hz))


def edge_hz(response, level, inside_hz, outside_hz):
    """Where a response falls through `level` between two frequencies, by bisection."""
    for _ in range(40):
        middle = (inside_hz + outside_hz) / 2.0
        if response(middle) >= level:
            inside_hz = middle
        else:
            outside_hz = middle
    return inside_hz


class CochleaWeights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tensors = read_safetensors(os.path.join(FOLDER, "weights.safetensors"))
        with open(os.path.join(FOLDER, "model.yaml")) as file:
            cls.centres_hz = [int(number) for number in re.findall(r'"(\d+) Hz"', file.read())]
        cls.bands = [cls.filters_of_band(channel) for channel in range(32)]

    @classmethod
    def filters_of_band(cls, channel):
        """(dilation, taps) of each layer that shapes a band."""
        filters = []
        for dilation in (64, 16, 4, 1):
            shape, values = cls.tensors["gammatone_%d.dw.weight" % dilation]
            filters.append((dilation, values[channel * shape[2] : (channel + 1) * shape[2]]))
        return filters

    def response(self, channel, frequency_hz):
        """From the sound to the band's signal before rectification."""
        product = 1.0 + 0j
        for dilation, taps in self.bands[channel]:
            product *= response(taps, frequency_hz, dilation)
        return product

    def cascade(self, channel, frequency_hz):
        return abs(self.response(channel, frequency_hz))

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

    def test_every_band_peaks_at_its_centre_with_unit_gain(self):
        for channel, centre in enumerate(self.centres_hz):
            erb = erb_hz(centre)
            grid = frequencies(centre - erb, centre + erb, 401)
            peak = max(grid, key=lambda f: self.cascade(channel, f))
            self.assertAlmostEqual(peak / centre, 1.0, delta=0.003, msg="%d Hz" % centre)
            self.assertAlmostEqual(self.cascade(channel, centre), 1.0, delta=1e-4)
            self.assertLess(self.cascade(channel, peak), 1.001)

    def test_every_band_is_as_wide_as_the_gammatone_formula_says(self):
        # A 4th-order gammatone with b = 1.019 ERB is 0.886 ERB wide 3 dB below its peak: 2 b sqrt(2^(1/4) - 1).
        formula = 2.0 * 1.019 * math.sqrt(2.0 ** 0.25 - 1.0)
        self.assertAlmostEqual(formula, 0.8865, delta=0.0001)
        for channel, centre in enumerate(self.centres_hz):
            erb = erb_hz(centre)
            half = self.cascade(channel, centre) / math.sqrt(2.0)
            low, high = (edge_hz(lambda f: self.cascade(channel, f), half, centre, centre + side * erb)
                         for side in (-1.0, 1.0))
            self.assertAlmostEqual((high - low) / erb / formula, 1.0, delta=0.01, msg="%d Hz" % centre)

    def test_every_band_follows_the_gammatone_formula_from_0_Hz_to_24_kHz(self):
        for channel, centre in enumerate(self.centres_hz):
            erb = erb_hz(centre)
            near = [f for f in frequencies(centre - 4.0 * erb, centre + 4.0 * erb, 161) if f >= 0.0]
            for f in near + frequencies(0.0, 24000.0, 321):
                self.assertAlmostEqual(self.cascade(channel, f), formula_gain(centre, f), delta=0.0065,
                                       msg="%d Hz at %g Hz" % (centre, f))

    def test_a_dilated_band_does_not_repeat_at_other_frequencies(self):
        for channel, centre in enumerate(self.centres_hz):
            # The layer of dilation 64 has its pass band again at both sides of every multiple of 750 Hz.
            images = [multiple * 750.0 + side * (centre % 750) for multiple in range(33) for side in (-1, 1)]
            for f in images:
                if 0.0 <= f <= 24000.0 and abs(f - centre) > 3.0 * erb_hz(centre):
                    excess = self.cascade(channel, f) - formula_gain(centre, f)
                    self.assertLess(decibels(excess), -60.0, "%d Hz at %g Hz" % (centre, f))

    def test_every_band_is_as_late_as_the_gammatone_formula_says(self):
        for channel, centre in enumerate(self.centres_hz):
            turned = cmath.phase(self.response(channel, centre + 0.5) / self.response(channel, centre - 0.5))
            delay = -turned / (2.0 * math.pi) * RATE_HZ  # group delay in frames: the phase over 1 Hz
            formula = 4.0 / (2.0 * math.pi * 1.019 * erb_hz(centre)) * RATE_HZ
            self.assertAlmostEqual(delay, formula, delta=5.0, msg="%d Hz" % centre)

    def test_the_envelope_is_a_low_pass_of_unit_gain_without_images(self):
        shape, values = self.tensors["smooth.dw.weight"]
        smooth = values[: shape[2]]
        self.assertTrue(values == smooth * 32)
        shape, values = self.tensors["envelope.dw.weight"]
        envelope = values[: shape[2]]
        self.assertTrue(values == envelope * 32)
        both = lambda f: gain(smooth, f, 1) * gain(envelope, f, 8)
        self.assertAlmostEqual(both(0.0), 1.0, delta=1e-6)
        self.assertAlmostEqual(decibels(both(131.0)), -3.0, delta=0.1)
        for f in frequencies(700.0, 24000.0, 1166):
            self.assertLess(decibels(both(f)), -40.0, "at %g Hz" % f)
        for f in frequencies(2000.0, 24000.0, 1101):
            self.assertLess(decibels(both(f)), -60.0, "at %g Hz" % f)

    def test_mixes_are_identities_and_the_fan_out_copies(self):
        identity = tuple(1.0 if i // 32 == i % 32 else 0.0 for i in range(32 * 32))
        layers = ["gammatone_%d" % dilation for dilation in (64, 16, 4, 1)] + ["smooth", "envelope"]
        for layer in layers:
            self.assertTrue(self.tensors[layer + ".pw.weight"] == ([32, 32, 1], identity), layer)
        self.assertTrue(self.tensors["fan_out.pw.weight"] == ([32, 1, 1], (1.0,) * 32))


if __name__ == "__main__":
    unittest.main()
