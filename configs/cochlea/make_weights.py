#!/usr/bin/env python3
"""Makes weights.safetensors, the numbers behind model.yaml, from published formulas.

    python3 configs/cochlea/make_weights.py [OUTPUT]      OUTPUT: weights.safetensors beside this file

Needs nothing but Python's standard library. docs/cochlea.md explains the formulas and names their sources.
"""

import json
import math
import os
import struct
import sys

FRAME_RATE_HZ = 48000.0
CHANNELS = 32
LOWEST_HZ, HIGHEST_HZ = 150.0, 5000.0

ANTIALIAS_TAPS = 91
ANTIALIAS_PASS_HZ, ANTIALIAS_STOP_HZ = 5000.0, 7000.0
# The window's own stop band. The filter is asked for 60 dB; 2 dB more and 91 taps (the usual estimate for this
# transition says 87) put the edge at 7 kHz safely under it.
ANTIALIAS_STOP_DB = 62.0

DILATION = 4  # gammatone and envelope see every 4th frame: 12 kHz
# 42.7 ms. The response of the narrowest channel (150 Hz) is over by then: the part cut off starts 37 dB below the
# response's largest value. With 257 taps that channel would come out 1.5 times too wide.
GAMMATONE_TAPS = 513
GAMMATONE_ORDER = 4
ENVELOPE_TAPS = 65


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


def bessel_i0(x):
    total, term, k = 1.0, 1.0, 1
    while term > 1e-17 * total:
        term *= (x / (2.0 * k)) ** 2
        total += term
        k += 1
    return total


def antialias_response():
    """Low-pass by the windowed sinc, Kaiser's window; unit gain at 0 Hz."""
    beta = 0.1102 * (ANTIALIAS_STOP_DB - 8.7)
    cutoff = (ANTIALIAS_PASS_HZ + ANTIALIAS_STOP_HZ) / FRAME_RATE_HZ  # half the sum of the edges, over half the rate
    middle = (ANTIALIAS_TAPS - 1) / 2.0
    response = []
    for n in range(ANTIALIAS_TAPS):
        x = n - middle
        sinc = cutoff if x == 0 else math.sin(math.pi * cutoff * x) / (math.pi * x)
        response.append(sinc * bessel_i0(beta * math.sqrt(1.0 - (x / middle) ** 2)) / bessel_i0(beta))
    total = math.fsum(response)
    return [value / total for value in response]


def gammatone_response(centre_hz):
    """t^3 exp(-2 pi b t) cos(2 pi f t) sampled at 12 kHz, b = 1.019 ERB(f); unit gain at f."""
    rate_hz = FRAME_RATE_HZ / DILATION
    b_hz = 1.019 * erb_hz(centre_hz)
    response = []
    real, imaginary = [], []
    for n in range(GAMMATONE_TAPS):
        t = n / rate_hz
        phase = 2.0 * math.pi * centre_hz * t
        value = t ** (GAMMATONE_ORDER - 1) * math.exp(-2.0 * math.pi * b_hz * t) * math.cos(phase)
        response.append(value)
        real.append(value * math.cos(phase))
        imaginary.append(value * math.sin(phase))
    gain = math.hypot(math.fsum(real), math.fsum(imaginary))
    return [value / gain for value in response]


def smooth_response():
    """Two running means of 4 frames, one after the other: zeros at 12 and 24 kHz, where the dilated envelope filter
    repeats its pass band."""
    return [value / 16.0 for value in (1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0)]


def envelope_response():
    """Hann's window without its zero ends; unit gain at 0 Hz."""
    window = [math.sin(math.pi * (n + 1) / (ENVELOPE_TAPS + 1)) ** 2 for n in range(ENVELOPE_TAPS)]
    total = math.fsum(window)
    return [value / total for value in window]


def taps(response):
    """The last tap of a causal layer meets the newest frame, so an impulse response is stored backwards."""
    return response[::-1]


def identity(size):
    return [1.0 if row == column else 0.0 for row in range(size) for column in range(size)]


def tensors():
    """{name: (shape, values)}, the last axis fastest."""
    n = CHANNELS
    gammatone = [value for centre in centre_frequencies_hz() for value in taps(gammatone_response(centre))]
    return {
        "antialias.dw.weight": ([1, 1, ANTIALIAS_TAPS], taps(antialias_response())),
        "antialias.pw.weight": ([1, 1, 1], [1.0]),
        "fan_out.pw.weight": ([n, 1, 1], [1.0] * n),
        "gammatone.dw.weight": ([n, 1, GAMMATONE_TAPS], gammatone),
        "gammatone.pw.weight": ([n, n, 1], identity(n)),
        "smooth.dw.weight": ([n, 1, 7], taps(smooth_response()) * n),
        "smooth.pw.weight": ([n, n, 1], identity(n)),
        "envelope.dw.weight": ([n, 1, ENVELOPE_TAPS], taps(envelope_response()) * n),
        "envelope.pw.weight": ([n, n, 1], identity(n)),
    }


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
