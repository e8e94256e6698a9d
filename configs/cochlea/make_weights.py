#!/usr/bin/env python3
"""Makes weights.safetensors, the numbers behind model.yaml, from published formulas.

    python3 configs/cochlea/make_weights.py [OUTPUT]      OUTPUT: weights.safetensors beside this file

Needs nothing but Python's standard library. docs/cochlea.md explains the formulas and names their sources.
"""

import cmath
import json
import math
import os
import struct
import sys

FRAME_RATE_HZ = 48000.0
CHANNELS = 32
LOWEST_HZ, HIGHEST_HZ = 150.0, 5000.0

GAMMATONE_ORDER = 4
GAMMATONE_DILATIONS = (64, 16, 4, 1)  # of the four layers, in the model's order; each a quarter of the one before
# Of the first layer: 31 taps reach back 1920 frames, 40 ms. The response of the narrowest channel (150 Hz) is over by
# then: what is cut off changes its gain by at most 0.5 % of the peak. With 25 taps it would come out 3 % too wide.
GAMMATONE_TAPS = 31
# Where a channel's zeros go. At dilation 1 those of a low channel make a differentiator that amplifies what the layers
# before have rounded off: 15,000-fold at 150 Hz, 22-fold at 818 Hz. At dilation 4 those of a high channel bend its
# skirts: at 5 kHz by up to 4 % of the peak, against 0.6 % at dilation 1.
ZEROS_AT_DILATION_1_FROM_HZ = 750.0

SMOOTH_FRAMES = 8  # of each of the two running means
ENVELOPE_TAPS, ENVELOPE_DILATION = 32, 8


def erb_hz(frequency_hz):
    """Equivalent rectangular bandwidth of the ear's filter at this frequency (Glasberg & Moore 1990)."""
    return 24.7 * (4.37 * frequency_hz / 1000.0 + 1.0)


def erb_rate(frequency_hz):
    """Number of ERBs below this frequency (Glasberg & Moore 1990)."""
    return 21.4 * math.log10(4.37 * frequency_hz / 1000.0 + 1.0)


def frequency_of_erb_rate_hz(rate):
    return (10.0 ** (rate / 21.4) - 1.0) * 1000.0 / 4.37


def centre_frequencies_hz():
    """Evenly spaced in ERB rate, rounded to whole Hz so that a channel's name is its centre frequency."""
    low, high = erb_rate(LOWEST_HZ), erb_rate(HIGHEST_HZ)
    step = (high - low) / (CHANNELS - 1)
    return [round(frequency_of_erb_rate_hz(low + i * step)) for i in range(CHANNELS)]


def convolve(a, b):
    product = [0.0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return product


def power(polynomial, exponent):
    result = [1.0]
    for _ in range(exponent):
        result = convolve(result, polynomial)
    return result


def reciprocal(polynomial, terms):
    """The first terms of 1 / polynomial, whose constant term is 1."""
    result = []
    for n in range(terms):
        carried = sum(polynomial[k] * result[n - k] for k in range(1, min(n, len(polynomial) - 1) + 1))
        result.append((1.0 if n == 0 else 0.0) - carried)
    return result


def gammatone_poles_and_zeros(centre_hz):
    """Of the Laplace transform of t^3 exp(-2 pi b t) cos(2 pi f t), b = 1.019 ERB(f), in 1/s: a pole of order 4, whose
    conjugate is the other one, and four real zeros."""
    decay, turn = 2.0 * math.pi * 1.019 * erb_hz(centre_hz), 2.0 * math.pi * centre_hz
    offsets = [sign * (math.sqrt(2.0) + one) for sign in (1.0, -1.0) for one in (1.0, -1.0)]
    return complex(-decay, turn), [-decay + offset * turn for offset in offsets]


def gammatone_responses(centre_hz):
    """What each layer contributes to the gammatone at this frequency, an impulse response at the layer's dilation.

    A pole s becomes 1 / (1 - q x) with q = exp(s d / rate) and x a delay of d frames. Since

        1 / (1 - y) = (1 + y) (1 + y^2) / (1 - y^4),

    a layer of dilation d takes the first two factors and leaves the last, the same pole at dilation 4 d, to the layer
    before it. The first layer has nobody to leave it to: it takes the first terms of the power series.
    """
    pole, zeros = gammatone_poles_and_zeros(centre_hz)
    zeros_dilation = 1 if centre_hz >= ZEROS_AT_DILATION_1_FROM_HZ else 4
    responses = []
    for dilation in GAMMATONE_DILATIONS:
        seconds = dilation / FRAME_RATE_HZ
        q = cmath.exp(pole * seconds)
        # With the conjugate pole: (1 - q x) (1 - conj(q) x), (1 + q x) (1 + conj(q) x), and the latter for y^2.
        if dilation == GAMMATONE_DILATIONS[0]:
            pair = [1.0, -2.0 * q.real, abs(q) ** 2]
            response = reciprocal(power(pair, GAMMATONE_ORDER), GAMMATONE_TAPS)
        else:
            pair = [1.0, 2.0 * q.real, abs(q) ** 2]
            pair_squared = [1.0, 0.0, 2.0 * (q * q).real, 0.0, abs(q) ** 4]
            response = power(convolve(pair, pair_squared), GAMMATONE_ORDER)
        if dilation in (1, 4):
            for zero in zeros:
                response = convolve(response, [1.0, -math.exp(zero * seconds) if dilation == zeros_dilation else 0.0])
        responses.append(of_unit_gain(response, dilation, centre_hz))
    return responses


def of_unit_gain(response, dilation, frequency_hz):
    turn = -2j * math.pi * frequency_hz * dilation / FRAME_RATE_HZ
    gain = abs(sum(value * cmath.exp(turn * n) for n, value in enumerate(response)))
    return [value / gain for value in response]


def smooth_response():
    """Two running means of 8 frames, one after the other: zeros at 6, 12, 18 and 24 kHz, where the dilated envelope
    filter repeats its pass band."""
    mean = [1.0 / SMOOTH_FRAMES] * SMOOTH_FRAMES
    return convolve(mean, mean)


def envelope_response():
    """Hann's window without its zero ends; unit gain at 0 Hz."""
    window = [math.sin(math.pi * (n + 1) / (ENVELOPE_TAPS + 1)) ** 2 for n in range(ENVELOPE_TAPS)]
    return of_unit_gain(window, ENVELOPE_DILATION, 0.0)


def taps(response):
    """The last tap of a causal layer meets the newest frame, so an impulse response is stored backwards. Taps too small
    for float32 to notice become zeros: denormal ones would slow some machines down."""
    least = 1e-12 * max(abs(value) for value in response)
    return [value if abs(value) > least else 0.0 for value in reversed(response)]


def identity(size):
    return [1.0 if row == column else 0.0 for row in range(size) for column in range(size)]


def tensors():
    """{name: (shape, values)}, the last axis fastest."""
    n = CHANNELS
    channels = [gammatone_responses(centre_hz) for centre_hz in centre_frequencies_hz()]
    filters = {
        "gammatone_%d" % dilation: [responses[layer] for responses in channels]
        for layer, dilation in enumerate(GAMMATONE_DILATIONS)
    }
    filters["smooth"] = [smooth_response()] * n
    filters["envelope"] = [envelope_response()] * n

    result = {"fan_out.pw.weight": ([n, 1, 1], [1.0] * n)}
    for layer, responses in filters.items():
        values = [value for response in responses for value in taps(response)]
        result[layer + ".dw.weight"] = ([n, 1, len(responses[0])], values)
        result[layer + ".pw.weight"] = ([n, n, 1], identity(n))
    return result


def write_safetensors(path, named_tensors):
    """Little-endian F32: header length (8 bytes), JSON header padded to 8 bytes, data."""
    header, chunks, offset = {}, [], 0
    for name, (shape, values) in named_tensors.items():
        data = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(chunks)


def main(arguments):
    if len(arguments) > 1:
        sys.exit("usage: make_weights.py [OUTPUT]")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights.safetensors")
    path = arguments[0] if arguments else beside
    made = tensors()
    write_safetensors(path, made)
    for name, (shape, _) in made.items():
        print("%-20s %s" % (name, shape))
    print("%-20s %s" % ("centre frequencies", " ".join("%d" % f for f in centre_frequencies_hz())))
    print("wrote %s (%d bytes)" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
