#!/usr/bin/env python3
"""Times a chunk's way to a card and back: halotap's, by stack_latency, and PyTorch's in a CUDA graph, one table.

    bench/peers_stream_gpu.py [--stack-latency build/bin/stack_latency] [--calls N] [--chunk N]... [-- OPTION...]

The net is stack_latency's: 8 layers y = PW(SiLU(DW(x))), 128 channels, kernel 5, dilations 1, 2, 4, 8, causal, with
biases. PyTorch keeps its state on the card; a graph has a chunk's copy to the card, the stack, and the copy back, from
and to page-locked memory. A call is the graph's replay and the wait for it, by the host's clock. Before it is timed, its
result over a recording cut into chunks is compared with float64. --calls, --as and --samples behind -- are handed to
stack_latency.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit("peers_stream_gpu: needs a CUDA build of PyTorch: %s" % error)

ROOT = Path(__file__).resolve().parent.parent
CHANNELS = 128
LAYERS = 8
KERNEL_SIZE = 5
MOST_ERROR = 1e-5


def make_layers():
    torch.manual_seed(1)
    layers = []
    for index in range(LAYERS):
        layers.append({
            "dilation": 2 ** (index % 4),
            "dw_weight": torch.randn(CHANNELS, 1, KERNEL_SIZE, dtype=torch.float64) / KERNEL_SIZE ** 0.5,
            "dw_bias": torch.randn(CHANNELS, dtype=torch.float64) / KERNEL_SIZE ** 0.5,
            "pw_weight": torch.randn(CHANNELS, CHANNELS, dtype=torch.float64) / CHANNELS ** 0.5,
            "pw_bias": torch.randn(CHANNELS, 1, dtype=torch.float64) / CHANNELS ** 0.5,
        })
    return layers


def run_layer(layer, window):
    """[1, channels, halo + frames] -> [1, channels, frames]"""
    depthwise = F.conv1d(window, layer["dw_weight"], layer["dw_bias"], dilation=layer["dilation"], groups=CHANNELS)
    return layer["pw_weight"] @ F.silu(depthwise) + layer["pw_bias"]


def run_offline(layers, x):
    for layer in layers:
        x = run_layer(layer, F.pad(x, ((KERNEL_SIZE - 1) * layer["dilation"], 0)))
    return x


class Stream:
    """The stack in float32 on the card, with its state, as one graph a chunk."""

    def __init__(self, layers, frames):
        self.layers = [{name: value if name == "dilation" else value.float().cuda() for name, value in layer.items()}
                       for layer in layers]
        self.states = [torch.zeros(1, CHANNELS, (KERNEL_SIZE - 1) * layer["dilation"], device="cuda")
                       for layer in layers]
        self.input = torch.zeros(1, CHANNELS, frames).pin_memory()
        self.output = torch.zeros(1, CHANNELS, frames).pin_memory()
        self.x = torch.zeros(1, CHANNELS, frames, device="cuda")
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
            self.stream.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.step()
            for state in self.states:
                state.zero_()
            self.stream.synchronize()

    def step(self):
        self.x.copy_(self.input, non_blocking=True)
        x = self.x
        for layer, state in zip(self.layers, self.states):
            window = torch.cat([state, x], dim=2)
            state.copy_(window[:, :, window.shape[2] - state.shape[2]:])
            x = run_layer(layer, window)
        self.output.copy_(x, non_blocking=True)

    def call(self):
        self.graph.replay()
        self.stream.synchronize()


def check(layers, frames):
    recording = torch.randn(1, CHANNELS, 8 * frames, dtype=torch.float64)
    expected = run_offline(layers, recording)
    stream = Stream(layers, frames)
    for first in range(0, recording.shape[2], frames):
        stream.input.copy_(recording[:, :, first:first + frames])
        with torch.cuda.stream(stream.stream):
            stream.call()
        error = (stream.output - expected[:, :, first:first + frames]).norm() / expected.norm()
        if not error <= MOST_ERROR:
            sys.exit("peers_stream_gpu: PyTorch differs from float64 by %.1e" % error)


def time_calls(stream, frames, calls):
    times = []
    with torch.cuda.stream(stream.stream):
        for call in range(-calls // 10, calls):
            begun = time.perf_counter_ns()
            stream.call()
            if call >= 0:
                times.append(time.perf_counter_ns() - begun)
    times.sort()
    figures = [times[int(q * (calls - 1))] / 1000 for q in (0.5, 0.99, 0.999, 1)]
    print("%-22s %6d %9d %8.2f %8.2f %8.2f %9.2f %12.2f" %
          ("PyTorch, a graph", frames, calls, *figures, calls * frames / (sum(times) / 1000)), flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--stack-latency", default=ROOT / "build" / "bin" / "stack_latency", help="the program to time")
    parser.add_argument("--calls", type=int, default=20000, metavar="N", help="timed calls of PyTorch (20000)")
    parser.add_argument("--chunk", type=int, action="append", metavar="N", help="frames a chunk (1, 16 and 64)")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="of stack_latency, behind --")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        sys.exit("peers_stream_gpu: PyTorch %s finds no card" % torch.__version__)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for option in arguments.options[::2]:
        if option not in ("--calls", "--as", "--samples"):
            sys.exit("peers_stream_gpu: behind --: expected --calls, --as or --samples, got %s" % option)
    chunks = arguments.chunk or [1, 16, 64]
    options = [option for chunk in chunks for option in ("--chunk", str(chunk))]
    try:
        subprocess.run([arguments.stack_latency, *options, *arguments.options], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("peers_stream_gpu: --stack-latency: %s" % error)
    with torch.inference_mode():
        layers = make_layers()
        for frames in chunks:
            check(layers, frames)
            time_calls(Stream(layers, frames), frames, arguments.calls)


if __name__ == "__main__":
    main()
