#!/usr/bin/env python3
"""Times halotap beside ONNX Runtime and PyTorch: the same nets with the same weights, one thread, one core, one run.

    bench/peers_cpu.py [--halotap build/bin/halotap] [--rounds 5] [--seconds 0.3] [--json FILE]

Every net is first run by all three over a random recording and compared with a float64 computation. Then each round
times them in turn; what is printed are medians over the rounds. bench/README.md says what is measured and how.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
except ImportError as error:
    sys.exit("peers_cpu: needs what bench/requirements.txt names (make bench-peers installs it): %s" % error)

ROOT = Path(__file__).resolve().parent.parent
SEED = 1
# Longer than the longest receptive field (2047 frames) and whole chunks of every size.
RECORDING_FRAMES = 2560
TOLERANCE_REL_L2 = 1e-5

# Best medians of NeuralAmpModelerCore's and RTNeural's layers for the net x + PW(SiLU(DW)), kernel 3, 10 layers,
# dilations 1 to 512, on one thread of a 2-core AVX-512 machine: microseconds for {channels: {frames: us}}. Measured in
# another run on another machine.
AUDIO_LIBRARIES_US = {
    16: {1: 0.8, 16: 5.1, 64: 18.6},
    32: {16: 11.0, 64: 40.8},
    64: {1: 2.7, 16: 28.0, 64: 103.5, 256: 414.0},
}


@dataclass(frozen=True)
class Net:
    """Layers x + PW(SiLU(DW(x))), causal, with biases; dilations are repeated from the front."""

    name: str
    channels: int
    kernel_size: int
    dilations: tuple
    chunks: tuple
    ratio_goals: dict = field(default_factory=dict)  # chunk: least ratio to ONNX Runtime
    peak_goals: dict = field(default_factory=dict)  # chunk: least fraction of the core's peak
    audio_libraries_us: dict = field(default_factory=dict)

    def halo_frames(self, layer):
        return (self.kernel_size - 1) * self.dilations[layer]


def nets():
    cycled = lambda layers: tuple((1, 2, 4, 8)[i % 4] for i in range(layers))
    small_goals = {1: 8, 16: 6, 64: 3}
    yield Net("8 x 128 k5", 128, 5, cycled(8), (1, 16, 64, 512), {1: 8, 16: 4, 64: 2, 512: 1.8}, {64: 0.6, 512: 0.7})
    yield Net("4 x 64 k3", 64, 3, cycled(4), (1, 16, 64, 256, 512), small_goals)
    yield Net("2 x 16 k3", 16, 3, cycled(2), (1, 16, 64, 256, 512), small_goals)
    for channels, figures in AUDIO_LIBRARIES_US.items():
        dilations = tuple(1 << i for i in range(10))
        yield Net("10 x %d k3" % channels, channels, 3, dilations, (1, 16, 64, 256), audio_libraries_us=figures)


def make_weights(net):
    """One dict of float32 arrays a layer, scaled by 1/sqrt(fan-in) so that the signal keeps its size."""
    random = np.random.default_rng(SEED)
    normal = lambda shape, fan_in: (random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)
    c, k = net.channels, net.kernel_size
    return [
        {
            "dw.weight": normal((c, 1, k), k),
            "dw.bias": normal(c, k),
            "pw.weight": normal((c, c, 1), c),
            "pw.bias": normal(c, c),
        }
        for _ in net.dilations
    ]


def run_float64(net, weights, recording):
    """Runs the net over the whole recording [channels, frames], in float64."""
    x = recording.astype(np.float64)
    frames = x.shape[1]
    for layer, w in enumerate(weights):
        w = {name: values.astype(np.float64) for name, values in w.items()}
        dilation = net.dilations[layer]
        past = np.concatenate([np.zeros((net.channels, net.halo_frames(layer))), x], axis=1)
        z = np.repeat(w["dw.bias"][:, None], frames, axis=1)
        for tap in range(net.kernel_size):
            z += w["dw.weight"][:, 0, tap, None] * past[:, tap * dilation : tap * dilation + frames]
        x = x + w["pw.weight"][:, :, 0] @ (z / (1 + np.exp(-z))) + w["pw.bias"][:, None]
    return x


def rel_l2(got, expected):
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.astype("<f4").tobytes())


def write_model(folder, net, weights):
    tensors = {}
    lines = ["format: halotap-model/1", "name: peer", "frame_rate: 48000", "weights: weights.safetensors", "layers:"]
    for i, w in enumerate(weights):
        lines.append(
            "  - {name: layer%d, type: temporal_conv, in_channels: %d, out_channels: %d, kernel_size: %d, "
            "dilation: %d, padding: causal, activation: silu, residual: true}"
            % (i, net.channels, net.channels, net.kernel_size, net.dilations[i])
        )
        tensors.update({"layer%d.%s" % (i, name): values for name, values in w.items()})
    write_safetensors(folder / "weights.safetensors", tensors)
    (folder / "model.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "model.yaml"


class Halotap:
    def __init__(self, program):
        self.program = program

    def _run(self, *arguments):
        try:
            done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        except OSError as error:
            sys.exit("peers_cpu: %s: %s" % (self.program, error.strerror))
        if done.returncode != 0:
            sys.exit("peers_cpu: %s %s: %s" % (self.program, " ".join(map(str, arguments)), done.stderr.strip()))
        return done.stdout

    def replay(self, model, recording, chunk, folder):
        np.save(folder / "x.npy", np.ascontiguousarray(recording.T))
        self._run("replay", "--model", model, "--input", folder / "x.npy", "--output", folder / "y.npy",
                  "--chunk", chunk, "--backend", "cpu")
        return np.load(folder / "y.npy").T

    def bench(self, model, chunk, seconds):
        return json.loads(self._run("bench", "stack", "--model", model, "--chunk", chunk, "--backend", "cpu",
                                    "--seconds", seconds, "--json"))


def onnx_session(graph):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def onnx_zeros(*shape):
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))


class EmptyOnnxCall:
    """A graph that copies one number: what a call of ONNX Runtime from Python costs before any work."""

    def __init__(self):
        one = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1,))
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        self._session = onnx_session(onnx.helper.make_graph([node], "empty", [one("x")], [one("y")]))
        self._binding = self._session.io_binding()
        self._binding.bind_ortvalue_input("x", onnx_zeros(1))
        self._binding.bind_ortvalue_output("y", onnx_zeros(1))

    def step(self):
        self._session.run_with_iobinding(self._binding)


class OnnxRuntime:
    """The net as a graph whose inputs and outputs hold each layer's history.

    Everything is bound to memory of its own, two sets of histories that swap roles from call to call, so that a call
    copies nothing but what the graph says. `spatial` is 1 for Conv over [1, C, frames] and 2 for [1, C, 1, frames]:
    ONNX Runtime has other kernels for the two.
    """

    def __init__(self, net, weights, chunk, spatial):
        self.name = "Conv %dd" % spatial
        self._shape = (1, net.channels) + (1,) * (spatial - 1)
        self._session = onnx_session(self._graph(net, weights, chunk, spatial))
        value = lambda frames: onnx_zeros(*self._shape, frames)
        halos = [net.halo_frames(i) for i in range(len(weights))]
        self._input, self._output = value(chunk), value(chunk)
        self._histories = [[value(halo) for halo in halos] for _ in range(2)]
        self._bindings = [self._bind(self._histories[i], self._histories[1 - i]) for i in range(2)]
        self._turn = 0

    def _bind(self, before, after):
        binding = self._session.io_binding()
        binding.bind_ortvalue_input("x", self._input)
        binding.bind_ortvalue_output("y", self._output)
        for i, (old, new) in enumerate(zip(before, after)):
            binding.bind_ortvalue_input("history%d" % i, old)
            binding.bind_ortvalue_output("new_history%d" % i, new)
        return binding

    def _graph(self, net, weights, chunk, spatial):
        helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
        constants = [onnx.numpy_helper.from_array(np.array([np.iinfo(np.int64).max]), "end"),
                     onnx.numpy_helper.from_array(np.array([spatial + 1]), "axis")]
        info = lambda name, frames: helper.make_tensor_value_info(name, float32, self._shape + (frames,))
        inputs, outputs, nodes = [info("x", chunk)], [info("y", chunk)], []
        x = "x"
        for i, w in enumerate(weights):
            own = lambda name: "%s%d" % (name, i)
            halo = net.halo_frames(i)
            inputs.append(info(own("history"), halo))
            outputs.append(info(own("new_history"), halo))
            for name, values in w.items():
                if spatial == 2 and values.ndim == 3:
                    values = values[:, :, None, :]
                constants.append(onnx.numpy_helper.from_array(values, own(name)))
            constants.append(onnx.numpy_helper.from_array(np.array([-halo]), own("start")))
            y = "y" if i + 1 == len(weights) else own("y")
            nodes += [
                helper.make_node("Concat", [own("history"), x], [own("window")], axis=spatial + 1),
                helper.make_node("Slice", [own("window"), own("start"), "end", "axis"], [own("new_history")]),
                helper.make_node("Conv", [own("window"), own("dw.weight"), own("dw.bias")], [own("z")],
                                 group=net.channels, dilations=[1] * (spatial - 1) + [net.dilations[i]]),
                helper.make_node("Sigmoid", [own("z")], [own("s")]),
                helper.make_node("Mul", [own("z"), own("s")], [own("a")]),
                helper.make_node("Conv", [own("a"), own("pw.weight"), own("pw.bias")], [own("mixed")]),
                helper.make_node("Add", [x, own("mixed")], [y]),
            ]
            x = y
        return helper.make_graph(nodes, "peer", inputs, outputs, constants)

    def step(self):
        self._session.run_with_iobinding(self._bindings[self._turn])
        self._turn = 1 - self._turn

    def process(self, block):
        self._input.update_inplace(np.ascontiguousarray(block, np.float32).reshape(self._shape + (-1,)))
        self.step()
        return self._output.numpy().reshape(block.shape).copy()


class TorchLayers(torch.nn.Module):
    def __init__(self, net, weights):
        super().__init__()
        c = net.channels
        self.halos = [net.halo_frames(i) for i in range(len(weights))]
        self.dw = torch.nn.ModuleList(
            torch.nn.Conv1d(c, c, net.kernel_size, groups=c, dilation=dilation) for dilation in net.dilations
        )
        self.pw = torch.nn.ModuleList(torch.nn.Conv1d(c, c, 1) for _ in weights)
        tensors = {}
        for i, w in enumerate(weights):
            for name, values in w.items():
                kind, part = name.split(".")
                tensors["%s.%d.%s" % (kind, i, part)] = torch.from_numpy(values)
        self.load_state_dict(tensors)

    def forward(self, x, *histories):
        new_histories = []
        for i, halo in enumerate(self.halos):
            window = torch.cat((histories[i], x), 2)
            new_histories.append(window[:, :, -halo:])
            x = x + self.pw[i](torch.nn.functional.silu(self.dw[i](window)))
        return (x, *new_histories)


class PyTorch:
    def __init__(self, net, weights, chunk, traced):
        self.name = "traced, frozen" if traced else "eager"
        self._call = TorchLayers(net, weights).eval()
        self._input = torch.zeros(1, net.channels, chunk)
        self._histories = [torch.zeros(1, net.channels, halo) for halo in self._call.halos]
        if traced:
            with warnings.catch_warnings():
                # Newer PyTorch wants torch.compile in its place, which compiles for minutes.
                warnings.simplefilter("ignore", FutureWarning)
                self._call = torch.jit.freeze(torch.jit.trace(self._call, (self._input, *self._histories)))

    def step(self):
        with torch.inference_mode():
            self._output, *self._histories = self._call(self._input, *self._histories)

    def process(self, block):
        self._input.copy_(torch.from_numpy(np.ascontiguousarray(block, np.float32))[None])
        self.step()
        return self._output[0].numpy().copy()


def time_us(step, seconds):
    """Median time of a call, after a tenth of the time as warm-up."""
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e8)
    while clock() < end:
        step()
    times = []
    end = clock() + int(seconds * 1e9)
    while not times or times[-1][1] < end:
        start = clock()
        step()
        times.append((start, clock()))
    return statistics.median(stop - start for start, stop in times) / 1e3


def check(who, got, expected):
    error = rel_l2(got, expected)
    if not error <= TOLERANCE_REL_L2:
        sys.exit("peers_cpu: %s: rel_l2 against float64: expected at most %g, got %g" % (who, TOLERANCE_REL_L2, error))
    return error


def in_chunks(peer, recording, chunk):
    return np.concatenate([peer.process(recording[:, t : t + chunk])
                           for t in range(0, recording.shape[1], chunk)], axis=1)


def measure(net, chunk, weights, expected, recording, halotap, folder, arguments):
    """Checks that all give the same numbers, times them in turn, and returns a row of the table."""
    model = folder / "model.yaml"
    peers = {"onnxruntime": [OnnxRuntime(net, weights, chunk, spatial) for spatial in (1, 2)],
             "pytorch": [PyTorch(net, weights, chunk, traced) for traced in (False, True)]}
    got = halotap.replay(model, recording, chunk, folder)
    errors = {"halotap": check("halotap, %s, chunk %d" % (net.name, chunk), got, expected)}
    for who, variants in peers.items():
        for variant in variants:
            name = "%s (%s)" % (who, variant.name)
            got = in_chunks(variant, recording, chunk)
            errors[name] = check("%s, %s, chunk %d" % (name, net.name, chunk), got, expected)

    rounds = []
    for _ in range(arguments.rounds):
        one = {"halotap": halotap.bench(model, chunk, arguments.seconds)}
        for who, variants in peers.items():
            one[who] = [time_us(variant.step, arguments.seconds) for variant in variants]
        rounds.append(one)

    median = lambda key: statistics.median(one["halotap"][key] for one in rounds)
    row = {"net": net.name, "chunk": chunk, "rel_l2": errors}
    for key in ("p50_us", "p999_us", "gflops", "peak_gflops", "peak_fraction", "l2_gbytes_per_s", "bytes_fraction"):
        row[key] = median(key)
    row["p999_over_p50"] = statistics.median(one["halotap"]["p999_us"] / one["halotap"]["p50_us"] for one in rounds)
    # No call can take less: its arithmetic at the core's peak, or its bytes at the rate of the second-level cache.
    row["least_us"] = statistics.median(
        max(2e-3 * one["halotap"]["macs"] / one["halotap"]["peak_gflops"],
            1e-3 * one["halotap"]["bytes"] / one["halotap"]["l2_gbytes_per_s"]) for one in rounds)
    for who, variants in peers.items():
        row[who] = [
            {
                "variant": variant.name,
                "p50_us": statistics.median(one[who][i] for one in rounds),
                "ratio": statistics.median(one[who][i] / one["halotap"]["p50_us"] for one in rounds),
            }
            for i, variant in enumerate(variants)
        ]
    row["audio_libraries_us"] = net.audio_libraries_us.get(chunk)
    ratio, peak = net.ratio_goals.get(chunk), net.peak_goals.get(chunk)
    row["goals"] = []
    if ratio is not None:
        met = min(variant["ratio"] for variant in row["onnxruntime"]) >= ratio
        row["goals"].append({"goal": ">= %g x ONNX Runtime" % ratio, "met": met})
    if peak is not None:
        row["goals"].append({"goal": ">= %g %% of peak" % (100 * peak), "met": row["peak_fraction"] >= peak})
    if row["audio_libraries_us"] is not None:
        row["goals"].append({"goal": "<= audio libraries", "met": row["p50_us"] <= row["audio_libraries_us"]})
    return row


def measure_cochlea(halotap, arguments):
    chunk, rate_hz = 480, 48000
    model = ROOT / "configs" / "cochlea" / "model.yaml"
    rounds = [halotap.bench(model, chunk, arguments.seconds) for _ in range(arguments.rounds)]
    p50_us = statistics.median(one["p50_us"] for one in rounds)
    return {"chunk": chunk, "p50_us": p50_us, "times_real_time": chunk / rate_hz * 1e6 / p50_us,
            "peak_fraction": statistics.median(one["peak_fraction"] for one in rounds)}


def number(value):
    return "%.2f" % value if value < 10 else "%.1f" % value if value < 100 else "%.0f" % value


def cells(row):
    """A row of the table as (heading, text) pairs."""
    yield "net", row["net"]
    yield "chunk", "%d" % row["chunk"]
    yield "halotap µs", number(row["p50_us"])
    yield "least µs", number(row["least_us"])
    yield "of peak", "%.0f %%" % (100 * row["peak_fraction"])
    yield "of L2", "%.0f %%" % (100 * row["bytes_fraction"])
    yield "p99.9 / p50", number(row["p999_over_p50"])
    for variant in row["onnxruntime"]:
        yield "ONNX Runtime, %s, µs" % variant["variant"], number(variant["p50_us"])
        yield "ratio", number(variant["ratio"])
    pytorch = min(row["pytorch"], key=lambda variant: variant["p50_us"])
    yield "PyTorch µs", number(pytorch["p50_us"])
    yield "ratio", number(pytorch["ratio"])
    yield "audio libraries µs", "" if row["audio_libraries_us"] is None else number(row["audio_libraries_us"])
    yield "goal", "; ".join("%s: %s" % (one["goal"], "met" if one["met"] else "missed") for one in row["goals"])


FOOTNOTES = """
Times are p50 of a call, medians over the rounds; a ratio is the median of each round's peer / halotap. Goals are judged
against the faster of ONNX Runtime's two forms; of PyTorch's (eager; traced and frozen) the faster is shown.
Least: the arithmetic at the core's measured peak or the bytes at its measured L2 rate, whichever takes longer. The
peak counts multiply-adds, and the activations, which come on top, are not counted as work.
Audio libraries: best medians of NeuralAmpModelerCore's and RTNeural's layers on one thread of a 2-core AVX-512 machine,
measured in another run on another machine, not scaled.
"""


def print_result(result):
    facts = result["facts"]
    print("%(date)s; %(cpu)s, core %(core)d, %(device)s; peak %(peak)s GFLOP/s, L2 %(l2)s GB/s; halotap %(commit)s, "
          "%(compiler)s; ONNX Runtime %(onnxruntime)s, PyTorch %(pytorch)s, Python %(python)s, NumPy %(numpy)s; "
          "%(rounds)d rounds of %(seconds)g s for each.\n" %
          {**facts, "peak": number(facts["peak_gflops"]), "l2": number(facts["l2_gbytes_per_s"])})
    rows = [list(cells(row)) for row in result["rows"]]
    print("| " + " | ".join(heading for heading, _ in rows[0]) + " |")
    print("|---|" + "---:|" * (len(rows[0]) - 2) + "---|")
    for row in rows:
        print("| " + " | ".join(text for _, text in row) + " |")
    if "cochlea" in result:
        cochlea = result["cochlea"]
        print("\nCochlea at 48 kHz, chunk %d: %s µs, %s x real time, %.0f %% of peak (goal: >= 200 x: %s)." %
              (cochlea["chunk"], number(cochlea["p50_us"]), number(cochlea["times_real_time"]),
               100 * cochlea["peak_fraction"], "met" if cochlea["times_real_time"] >= 200 else "missed"))
    print("\nAn empty call of ONNX Runtime from Python takes %s µs, which its times include." %
          number(result["empty_onnxruntime_call_us"]))
    print(FOOTNOTES.rstrip())


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--halotap", default=ROOT / "build" / "bin" / "halotap", help="the program to time")
    parser.add_argument("--rounds", type=int, default=5, help="turns of all (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each in a round (%(default)s)")
    parser.add_argument("--core", type=int, help="core to run all on; the last one allowed when not given")
    parser.add_argument("--net", default="", help="only nets whose name holds this")
    parser.add_argument("--json", metavar="FILE", help="also write everything measured there")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    core = max(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
    os.sched_setaffinity(0, {core})  # halotap, started from here, inherits it
    torch.set_num_threads(1)
    halotap = Halotap(arguments.halotap)
    random = np.random.default_rng(SEED)
    rows = []
    for net in nets():
        if arguments.net not in net.name:
            continue
        weights = make_weights(net)
        recording = random.standard_normal((net.channels, RECORDING_FRAMES)).astype(np.float32)
        expected = run_float64(net, weights, recording)
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), net, weights)
            for chunk in net.chunks:
                print("peers_cpu: %s, chunk %d" % (net.name, chunk), file=sys.stderr)
                rows.append(measure(net, chunk, weights, expected, recording, halotap, Path(folder), arguments))
    if not rows:
        sys.exit("peers_cpu: --net: no net's name holds '%s'" % arguments.net)
    one = halotap.bench(ROOT / "configs" / "cochlea" / "model.yaml", 1, 0.01)
    result = {
        "facts": {
            "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "core": core, "device": one["device"],
            "commit": one["commit"], "compiler": one["compiler"], "onnxruntime": onnxruntime.__version__,
            "pytorch": torch.__version__, "numpy": np.__version__, "python": platform.python_version(),
            "rounds": arguments.rounds, "seconds": arguments.seconds,
            "peak_gflops": statistics.median(row["peak_gflops"] for row in rows),
            "l2_gbytes_per_s": statistics.median(row["l2_gbytes_per_s"] for row in rows),
        },
        "empty_onnxruntime_call_us": time_us(EmptyOnnxCall().step, arguments.seconds),
        "rows": rows,
    }
    if arguments.net in "cochlea":
        result["cochlea"] = measure_cochlea(halotap, arguments)
    print_result(result)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
