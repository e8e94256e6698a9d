#!/usr/bin/env python3
"""Times halotap's block on a card beside PyTorch: the same shape, one process after the other, one run, one table.

    bench/peers_gpu.py [--halotap build/bin/halotap] [--scaling] [--no-compile] [--json FILE]

The block is y = PW(SiLU(DW(x))), causal, with biases; batch 16, 128 to 128 channels, kernel 5, dilation 2, 2048 frames
when no option says otherwise. Every time is the median over replays of a CUDA graph whose runs take turns over inputs
that together are five times the second-level cache, and every row has its error against float64. --scaling adds a
table of halotap alone over other shapes, each beside its own floor. bench/README.md says what is measured and how.
"""

import argparse
import datetime
import json
import math
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit("peers_gpu: needs a CUDA build of PyTorch: %s" % error)

ROOT = Path(__file__).resolve().parent.parent
SEED = 1
REPLAYS = 20


@dataclass(frozen=True)
class Shape:
    batch: int = 16
    channels: int = 128
    out_channels: int = 128
    kernel_size: int = 5
    dilation: int = 2
    frames: int = 2048

    def options(self):
        return ["--batch", str(self.batch), "--channels", str(self.channels), "--out-channels", str(self.out_channels),
                "--kernel", str(self.kernel_size), "--dilation", str(self.dilation), "--frames", str(self.frames)]

    def name(self):
        return "%d x %d to %d, k%d d%d, %d frames" % (self.batch, self.channels, self.out_channels, self.kernel_size,
                                                      self.dilation, self.frames)


def median_us(run, inputs):
    """Median time of one run(x) by replays of a graph that runs over all inputs in turn, several times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            for x in inputs:
                run(x)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    turns = max(1, math.ceil(40 / len(inputs)))
    graph = torch.cuda.CUDAGraph()
    outputs = [None] * len(inputs)  # kept, or one output's memory would serve for all and stay in the cache
    with torch.cuda.graph(graph):
        for _ in range(turns):
            for i, x in enumerate(inputs):
                outputs[i] = run(x)
    times = []
    for replay in range(-5, REPLAYS):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        if replay >= 0:
            times.append(1e3 * start.elapsed_time(stop) / (turns * len(inputs)))
    return statistics.median(times)


def make_weights(shape, dtype):
    generator = torch.Generator().manual_seed(SEED)
    normal = lambda size, fan_in: torch.randn(size, generator=generator, dtype=torch.float64) / math.sqrt(fan_in)
    weights = {
        "dw.weight": normal((shape.channels, 1, shape.kernel_size), shape.kernel_size),
        "dw.bias": normal((shape.channels,), shape.kernel_size),
        "pw.weight": normal((shape.out_channels, shape.channels, 1), shape.channels),
        "pw.bias": normal((shape.out_channels,), shape.channels),
    }
    # Rounded to the type first, so that the float64 result is that of the same numbers.
    return {name: values.to(dtype) for name, values in weights.items()}


def block(shape, weights, matmul):
    """The block as a function of x; with `matmul` the channel mix is a matrix product, else a convolution of size 1."""
    w = {name: values.cuda() for name, values in weights.items()}
    left = (shape.kernel_size - 1) * shape.dilation

    def run(x):
        z = F.conv1d(F.pad(x, (left, 0)), w["dw.weight"], w["dw.bias"], dilation=shape.dilation, groups=shape.channels)
        a = F.silu(z)
        if matmul:
            return torch.matmul(w["pw.weight"][:, :, 0], a) + w["pw.bias"][:, None]
        return F.conv1d(a, w["pw.weight"], w["pw.bias"])

    return run


def pytorch_rows(shape, compile_too):
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    variants = [("eager", False, None), ("eager, matmul form", True, None)]
    if compile_too:
        mode = "max-autotune-no-cudagraphs"
        variants += [("compiled, convolution form", False, mode), ("compiled, matmul form", True, mode)]
    for precision in ("fp32", "tf32", "bf16"):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        weights = make_weights(shape, dtype)
        item_bytes = shape.batch * shape.frames * (shape.channels + shape.out_channels) * dtype.itemsize
        sets = max(2, min(5 * l2_bytes // item_bytes + 1, 2000))
        torch.manual_seed(SEED)
        inputs = [torch.randn(shape.batch, shape.channels, shape.frames, device="cuda", dtype=dtype)
                  for _ in range(sets)]
        exact = block(shape, {name: values.double() for name, values in weights.items()}, False)(inputs[0].double())
        for name, matmul, mode in variants:
            run = block(shape, weights, matmul)
            if mode:
                torch._dynamo.reset()
                run = torch.compile(run, mode=mode, fullgraph=True)
            print("peers_gpu: PyTorch %s, %s" % (precision, name), file=sys.stderr)
            with torch.inference_mode():
                got = run(inputs[0]).double()
                error = (torch.linalg.vector_norm(got - exact) / torch.linalg.vector_norm(exact)).item()
                yield {"who": "PyTorch", "what": name, "precision": precision,
                       "samples": "fp32" if dtype == torch.float32 else precision, "cold_us": median_us(run, inputs),
                       "rel_l2": error}


def bench_halotap(halotap, shape, precision, samples, seconds=0.02):
    command = [str(halotap), "bench", "block", *shape.options(), "--backend", "cuda", "--precision", precision,
               "--samples", samples, "--seconds", str(seconds), "--json"]
    print("peers_gpu: " + " ".join(command[1:]), file=sys.stderr)
    try:
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("peers_gpu: --halotap: %s" % error)


def halotap_rows(halotap, shape):
    for precision, samples in (("fp32", "fp32"), ("tf32", "fp32"), ("bf16", "fp32"), ("fp32", "bf16"), ("bf16", "bf16"),
                               ("fp16", "fp16")):
        result = bench_halotap(halotap, shape, precision, samples)
        yield {"who": "halotap", "what": result["kernels"], "precision": precision, "samples": samples,
               "cold_us": result["kernel_cold_us"], "warm_us": result["kernel_warm_us"],
               "generic_us": result["generic_cold_us"], "copy_us": result["device_copy_cold_us"],
               "rel_l2": result["rel_l2"], "bench": result}


def matrix_tflops():
    """What a large product of bf16 matrices reaches on this card, on random data."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2e-6 * size**3 / median_us(lambda x: torch.matmul(x, b), [a] * 4)


def scaling_shapes():
    base = Shape()
    for frames in (64, 256, 1024, 2048, 8192, 65536):
        yield "frames", replace(base, frames=frames)
    yield "frames", replace(base, batch=1, frames=1 << 20)
    for channels in (16, 32, 48, 64, 96, 192, 256, 384, 512):
        yield "channels", replace(base, channels=channels, out_channels=channels, frames=2048 * 128 // channels // 32 * 32)
    for kernel_size in (1, 3, 7, 9, 15, 31):
        yield "taps", replace(base, kernel_size=kernel_size)
    for dilation in (1, 4, 8, 16, 32, 64):
        yield "dilation", replace(base, dilation=dilation)
    for batch in (1, 4, 64, 256):
        yield "batch", replace(base, batch=batch)


def scaling_rows(halotap, tflops):
    for what, shape in scaling_shapes():
        result = bench_halotap(halotap, shape, "fp32", "fp32", 0.001)
        macs = shape.batch * shape.frames * shape.channels * shape.out_channels
        products_us = 3 * 2e-6 * macs / tflops  # the three products of two float16 terms
        floor_us = max(result["device_copy_cold_us"], products_us)
        yield {"varied": what, "shape": shape.name(), "kernels": result["kernels"], "cold_us": result["kernel_cold_us"],
               "warm_us": result["kernel_warm_us"], "generic_us": result["generic_cold_us"],
               "copy_us": result["device_copy_cold_us"],
               "products_us": products_us, "ratio": result["kernel_cold_us"] / floor_us, "rel_l2": result["rel_l2"]}


def number(value):
    return "" if value is None else "%.2f" % value if value < 100 else "%.0f" % value


def print_table(headings, rows):
    print("| " + " | ".join(headings) + " |")
    print("|---" + "|---:" * (len(headings) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def print_result(result):
    facts = result["facts"]
    print("%(date)s; %(card)s, driver %(driver)s; halotap %(commit)s, %(compiler)s; PyTorch %(pytorch)s; bf16 products "
          "at %(tflops).0f TFLOP/s.\n" % facts)
    print("%s:\n" % result["shape"])
    copies_us = lambda samples: [row["copy_us"] for row in result["rows"]
                                 if row["samples"] == samples and "copy_us" in row]
    floors_us = [row.get("copy_us") or min(copies_us(row["samples"])) for row in result["rows"]]
    print_table(["who", "arithmetic", "in and out", "what", "cold µs", "warm µs", "generic µs", "copy µs", "cold / copy",
                 "rel L2"],
                [[row["who"], row["precision"], row["samples"], row["what"], number(row["cold_us"]),
                  number(row.get("warm_us")), number(row.get("generic_us")), number(floor_us),
                  number(row["cold_us"] / floor_us), "%.1e" % row["rel_l2"]]
                 for row, floor_us in zip(result["rows"], floors_us)])
    if "scaling" in result:
        print("halotap, fp32, over other shapes:\n")
        print_table(["shape", "kernel", "cold µs", "warm µs", "generic µs", "copy µs", "products µs", "cold / floor",
                     "rel L2"],
                    [[row["shape"], row["kernels"], number(row["cold_us"]), number(row["warm_us"]),
                      number(row["generic_us"]), number(row["copy_us"]), number(row["products_us"]),
                      number(row["ratio"]), "%.1e" % row["rel_l2"]] for row in result["scaling"]])
    print("Cold: runs take turns over inputs and outputs of five times the second-level cache; warm: one input. Generic:\n"
          "cold, by the kernel that takes any layer. Copy: a device copy of the same bytes, cold, timed beside halotap's\n"
          "kernel; for PyTorch the fastest of these. Floor: the copy, or the three products that fp32 takes at\n"
          "the rate above, whichever takes longer. rel L2: against float64.")


def driver_version():
    return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--halotap", default=ROOT / "build" / "bin" / "halotap", help="the program to time")
    parser.add_argument("--scaling", action="store_true", help="also time halotap over other shapes")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--json", metavar="FILE", help="also write everything measured there")
    for field in ("batch", "channels", "out_channels", "kernel_size", "dilation", "frames"):
        parser.add_argument("--" + field.replace("_", "-"), type=int, default=getattr(Shape(), field), metavar="N")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        sys.exit("peers_gpu: PyTorch %s finds no card" % torch.__version__)
    shape = Shape(arguments.batch, arguments.channels, arguments.out_channels, arguments.kernel_size,
                  arguments.dilation, arguments.frames)
    tflops = matrix_tflops()
    rows = list(halotap_rows(arguments.halotap, shape))
    rows += pytorch_rows(shape, not arguments.no_compile)
    one = rows[0]["bench"]
    result = {
        "facts": {"date": datetime.date.today().isoformat(), "card": torch.cuda.get_device_name(0),
                  "driver": driver_version(), "commit": one["commit"], "compiler": one["compiler"],
                  "pytorch": torch.__version__, "tflops": tflops},
        "shape": shape.name(),
        "rows": rows,
    }
    if arguments.scaling:
        result["scaling"] = list(scaling_rows(arguments.halotap, tflops))
    print_result(result)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
