#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "halotap/pipeline/model.hpp"
#include "safetensors.hpp"
#include "yaml_reader.hpp"

namespace halotap::pipeline {
namespace {

using kernels::Activation;
using kernels::LayerSpec;
using kernels::LayerType;
using kernels::LayerWeights;
using kernels::Padding;
using Shape = std::vector<std::int64_t>;

constexpr double kMaxFrameRateHz = 1e9;
constexpr double kMaxBatchNormEps = 1e9;

// A layer as the YAML file has it, before its weights.
struct LayerEntry {
  LayerSpec spec;
  std::string place;  // of the layer in the file
  std::optional<YamlValue> bn_eps;
  std::map<std::string, YamlValue, std::less<>> renamed;  // our suffix, "dw.weight", to the checkpoint's name
};

std::string layer_place(const LayerEntry& entry) {
  return entry.place + ": layer " + in_quotes(entry.spec.name) + ": ";
}

const std::vector<std::string_view>& tensor_suffixes(LayerType type) {
  static const std::vector<std::string_view> kTemporalConv = {
      "dw.weight", "dw.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "pw.weight", "pw.bias"};
  static const std::vector<std::string_view> kPointwise = {"pw.weight", "pw.bias"};
  return type == LayerType::kTemporalConv ? kTemporalConv : kPointwise;
}

LayerEntry read_layer(const YamlValue& value) {
  YamlMap map = value.map();
  LayerEntry entry;
  entry.place = value.place();
  LayerSpec& spec = entry.spec;
  spec.name = map.required("name").text();
  spec.type = map.required("type").word({LayerType::kTemporalConv, LayerType::kPointwise});
  const bool temporal = spec.type == LayerType::kTemporalConv;
  spec.in_channels = map.required("in_channels").integer(1, kernels::kMaxChannels);
  spec.out_channels = map.required("out_channels").integer(1, kernels::kMaxChannels);

  const auto kernel_size = temporal ? map.required("kernel_size") : map.optional("kernel_size");
  if (kernel_size) spec.kernel_size = kernel_size->integer(1, kernels::kMaxKernelSize);
  if (const auto dilation = map.optional("dilation")) spec.dilation = dilation->integer(1, kernels::kMaxHaloFrames);
  if (const auto padding = map.optional("padding")) {
    spec.padding = padding->word({Padding::kCausal, Padding::kSame});
    // With one tap both are the same thing, and a pointwise layer's specification knows causal only.
    if (!temporal) spec.padding = Padding::kCausal;
  }
  spec.activation = temporal ? Activation::kSilu : Activation::kIdentity;
  if (const auto activation = map.optional("activation")) {
    spec.activation =
        activation->word({Activation::kIdentity, Activation::kRelu, Activation::kLeakyRelu, Activation::kSilu,
                          Activation::kGelu, Activation::kTanh, Activation::kSigmoid, Activation::kSoftmax});
  }
  if (const auto residual = map.optional("residual")) spec.residual = residual->boolean();
  entry.bn_eps = map.optional("bn_eps");
  if (const auto tensors = map.optional("tensors")) {
    YamlMap renamed = tensors->map();
    for (const std::string_view suffix : tensor_suffixes(spec.type)) {
      if (const auto name = renamed.optional(suffix)) entry.renamed.emplace(suffix, *name);
    }
    renamed.refuse_unknown_keys();
  }
  map.refuse_unknown_keys();

  try {
    kernels::validate(spec);
  } catch (const std::invalid_argument& error) {
    fail(Fault::kModel, layer_place(entry) + error.what());
  }
  return entry;
}

// Takes tensors out of a checkpoint layer by layer and remembers which, so that those nobody wants are noticed.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& path) : file_(path) {}

  LayerWeights read_layer(const LayerEntry& entry) {
    const LayerSpec& spec = entry.spec;
    const Shape per_input = {spec.in_channels};
    LayerWeights weights;
    if (spec.type == LayerType::kTemporalConv) {
      weights.dw_weight = required(entry, "dw.weight", {{spec.in_channels, 1, spec.kernel_size}});
      weights.dw_bias = optional(entry, "dw.bias", per_input);
      weights.batch_norm = read_batch_norm(entry);
    }
    if (entry.bn_eps && !weights.batch_norm) entry.bn_eps->refuse("a layer with batch norm tensors", "one without");
    weights.pw_weight =
        required(entry, "pw.weight", {{spec.out_channels, spec.in_channels, 1}, {spec.out_channels, spec.in_channels}});
    weights.pw_bias = optional(entry, "pw.bias", {spec.out_channels});
    try {
      kernels::validate(spec, weights);
    } catch (const std::invalid_argument& error) {
      fail(Fault::kModel, layer_place(entry) + error.what());
    }
    return weights;
  }

  // Throws when a tensor is left that no layer has taken.
  void refuse_unused() const {
    constexpr std::size_t kNamed = 3;
    std::size_t unused = 0;
    std::string names;
    for (const auto& [name, entry] : file_.tensors()) {
      if (taken_.contains(name)) continue;
      if (++unused <= kNamed) names += (unused > 1 ? ", " : "") + in_quotes(name);
    }
    if (unused == 0) return;
    if (unused > kNamed) names += " and " + std::to_string(unused - kNamed) + " more";
    fail(Fault::kModel, file_.name() + ": expected only tensors that a layer uses, got " + names);
  }

 private:
  static std::string tensor_name(const LayerEntry& entry, std::string_view suffix) {
    const auto renamed = entry.renamed.find(suffix);
    return renamed != entry.renamed.end() ? renamed->second.text() : entry.spec.name + "." + std::string(suffix);
  }

  // A tensor that the file renames is meant to be there.
  bool has(const LayerEntry& entry, std::string_view suffix) const {
    return entry.renamed.contains(suffix) || file_.tensors().contains(tensor_name(entry, suffix));
  }

  std::vector<double> required(const LayerEntry& entry, std::string_view suffix, const std::vector<Shape>& shapes) {
    const std::string name = tensor_name(entry, suffix);
    const auto found = file_.tensors().find(name);
    const std::string got = found == file_.tensors().end() ? "no such tensor" : to_string(found->second.shape);
    if (found == file_.tensors().end() ||
        std::find(shapes.begin(), shapes.end(), found->second.shape) == shapes.end()) {
      std::string expected;
      for (const Shape& shape : shapes) expected += (expected.empty() ? "" : " or ") + to_string(shape);
      fail(Fault::kModel, file_.name() + ": tensor " + in_quotes(name) + ": expected shape " + expected + " (" +
                              std::string(suffix) + " of layer " + in_quotes(entry.spec.name) + "), got " + got);
    }
    taken_.insert(name);
    std::vector<double> numbers = file_.read(name);
    const auto odd =
        std::find_if_not(numbers.begin(), numbers.end(), [](double number) { return std::isfinite(number); });
    if (odd != numbers.end()) {
      fail(Fault::kModel, file_.name() + ": tensor " + in_quotes(name) + ": expected finite numbers, got " +
                              (std::isnan(*odd) ? "nan"
                               : *odd > 0       ? "inf"
                                                : "-inf") +
                              " at " + index_text(odd - numbers.begin(), found->second.shape));
    }
    return numbers;
  }

  std::vector<double> optional(const LayerEntry& entry, std::string_view suffix, const Shape& shape) {
    if (!has(entry, suffix)) return {};
    return required(entry, suffix, {shape});
  }

  std::optional<kernels::BatchNorm> read_batch_norm(const LayerEntry& entry) {
    constexpr std::array<std::string_view, 4> kSuffixes = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"};
    if (std::none_of(kSuffixes.begin(), kSuffixes.end(), [&](std::string_view s) { return has(entry, s); })) return {};
    const std::vector<Shape> shape = {{entry.spec.in_channels}};
    kernels::BatchNorm batch_norm;
    batch_norm.weight = required(entry, kSuffixes[0], shape);
    batch_norm.bias = required(entry, kSuffixes[1], shape);
    batch_norm.running_mean = required(entry, kSuffixes[2], shape);
    batch_norm.running_var = required(entry, kSuffixes[3], shape);
    if (entry.bn_eps) batch_norm.eps = entry.bn_eps->positive_number(kMaxBatchNormEps);
    // PyTorch stores how many batches the statistics come from beside them; inference has no use for it.
    std::string counter = tensor_name(entry, kSuffixes[2]);
    if (const std::size_t stem = counter.rfind("running_mean"); stem != std::string::npos) {
      taken_.insert(counter.replace(stem, std::string::npos, "num_batches_tracked"));
    }
    return batch_norm;
  }

  static std::string index_text(std::int64_t position, const Shape& shape) {
    Shape index(shape.size());
    for (std::size_t axis = shape.size(); axis-- > 0; position /= shape[axis]) index[axis] = position % shape[axis];
    return to_string(index);
  }

  SafetensorsFile file_;
  std::set<std::string, std::less<>> taken_;
};

std::vector<std::string> read_channel_names(const YamlValue& value, std::int64_t channels) {
  const auto count = static_cast<std::size_t>(channels);
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const YamlValue& entry : value.list(1, kernels::kMaxChannels)) {
    names.push_back(entry.text());
    if (!known.insert(names.back()).second) entry.refuse("a name of its own for each channel");
  }
  if (names.size() != count) {
    value.refuse(std::to_string(count) + " names, one a channel", std::to_string(names.size()));
  }
  return names;
}

}  // namespace

Model load_model(const std::filesystem::path& file) {
  const YamlFile yaml(file, Fault::kModel);
  YamlMap root = yaml.root("halotap-model/1");

  Model model;
  model.name = root.required("name").text();
  model.frame_rate_hz = root.required("frame_rate").positive_number(kMaxFrameRateHz);
  const std::filesystem::path weights_file = file.parent_path() / root.required("weights").text();
  const auto channels = root.optional("channels");
  const auto output_channels = root.optional("output_channels");
  const YamlValue list = root.required("layers");
  root.refuse_unknown_keys();

  std::vector<LayerEntry> entries;
  for (const YamlValue& value : list.list(1, kernels::kMaxLayers)) entries.push_back(read_layer(value));
  if (channels) model.input_channels = read_channel_names(*channels, entries.front().spec.in_channels);
  if (output_channels) model.output_channels = read_channel_names(*output_channels, entries.back().spec.out_channels);

  Checkpoint checkpoint(weights_file);
  std::vector<kernels::Layer> layers;
  layers.reserve(entries.size());
  for (const LayerEntry& entry : entries) layers.push_back({entry.spec, checkpoint.read_layer(entry)});
  checkpoint.refuse_unused();
  try {
    model.stack = std::make_shared<const kernels::Stack>(std::move(layers));
  } catch (const std::invalid_argument& error) {
    fail(Fault::kModel, list.place() + ": key 'layers': " + error.what());
  }
  model.files = {file, weights_file};
  return model;
}

}  // namespace halotap::pipeline
