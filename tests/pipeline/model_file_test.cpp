#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "pipeline/refusal.hpp"
#include "pipeline/safetensors_builder.hpp"

namespace halotap::pipeline {
namespace {

using kernels::Activation;
using kernels::LayerType;
using kernels::Padding;
using test::bytes_of;
using test::refusal;
using test::SafetensorsBuilder;
using test::ScratchFolder;

// A sound model of two layers, 3 -> 4 -> 2 channels, that a test changes one thing of.
class ModelFiles {
 public:
  std::string yaml =
      "format: halotap-model/1\n"  // line 1
      "name: small\n"              // 2
      "frame_rate: 100\n"          // 3
      "weights: w.safetensors\n"   // 4
      "layers:\n"                  // 5
      "  - name: a\n"              // 6
      "    type: temporal_conv\n"  // 7
      "    in_channels: 3\n"       // 8
      "    out_channels: 4\n"      // 9
      "    kernel_size: 5\n"       // 10
      "  - name: b\n"              // 11
      "    type: pointwise\n"      // 12
      "    in_channels: 4\n"       // 13
      "    out_channels: 2\n";     // 14
  SafetensorsBuilder weights = SafetensorsBuilder()
                                   .add("a.dw.weight", {3, 1, 5}, 0.5F)
                                   .add("a.pw.weight", {4, 3, 1}, -0.25F)
                                   .add("b.pw.weight", {2, 4, 1}, 2.0F)
                                   .add("b.pw.bias", {2}, 1.0F);

  ModelFiles& replace(const std::string& from, const std::string& to) {
    const std::size_t at = yaml.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    yaml.replace(at, from.size(), to);
    return *this;
  }

  // Adds lines to the first layer, indented as its keys are.
  ModelFiles& add_to_a(const std::string& line) {
    return replace("    kernel_size: 5\n", "    kernel_size: 5\n    " + line + "\n");
  }
  ModelFiles& add_to_b(const std::string& line) {
    yaml += "    " + line + "\n";
    return *this;
  }

  ModelFiles& add_batch_norm() {
    weights.add("a.bn.weight", {3}, 1.0F).add("a.bn.bias", {3}, 0.0F);
    weights.add("a.bn.running_mean", {3}, 0.5F).add("a.bn.running_var", {3}, 4.0F);
    weights.add("a.bn.num_batches_tracked", "I64", {}, bytes_of(std::vector<std::int64_t>{7}));
    return *this;
  }

  Model load() const {
    folder_.write("w.safetensors", weights.bytes());
    return load_model(folder_.write("m.yaml", yaml));
  }
  std::string refused() const {
    return refusal<ModelError>(folder_, [&] { load(); });
  }

 private:
  ScratchFolder folder_;
};

TEST(ModelFile, ReadsLayersAndTheirDefaults) {
  const Model model = ModelFiles().load();
  EXPECT_EQ(model.name, "small");
  EXPECT_EQ(model.frame_rate_hz, 100);
  EXPECT_TRUE(model.input_channels.empty());
  EXPECT_TRUE(model.output_channels.empty());
  ASSERT_EQ(model.stack->layers().size(), 2U);
  const kernels::Layer& a = model.stack->layers()[0];
  EXPECT_EQ(a.spec.name, "a");
  EXPECT_EQ(a.spec.type, LayerType::kTemporalConv);
  EXPECT_EQ(a.spec.in_channels, 3);
  EXPECT_EQ(a.spec.out_channels, 4);
  EXPECT_EQ(a.spec.kernel_size, 5);
  EXPECT_EQ(a.spec.dilation, 1);
  EXPECT_EQ(a.spec.padding, Padding::kCausal);
  EXPECT_EQ(a.spec.activation, Activation::kSilu);
  EXPECT_FALSE(a.spec.residual);
  EXPECT_EQ(a.weights.dw_weight, std::vector<double>(15, 0.5));
  EXPECT_TRUE(a.weights.dw_bias.empty());
  EXPECT_FALSE(a.weights.batch_norm);
  EXPECT_EQ(a.weights.pw_weight, std::vector<double>(12, -0.25));
  EXPECT_TRUE(a.weights.pw_bias.empty());
  const kernels::Layer& b = model.stack->layers()[1];
  EXPECT_EQ(b.spec.type, LayerType::kPointwise);
  EXPECT_EQ(b.spec.activation, Activation::kIdentity);
  EXPECT_EQ(b.weights.pw_bias, std::vector<double>(2, 1.0));
}

TEST(ModelFile, ReadsEveryLayerKey) {
  ModelFiles files;
  files.add_to_a("dilation: 3\n    padding: same\n    activation: gelu\n    bn_eps: 1e-3").add_batch_norm();
  files.add_to_b("activation: softmax");
  const Model model = files.load();
  const kernels::Layer& a = model.stack->layers()[0];
  EXPECT_EQ(a.spec.dilation, 3);
  EXPECT_EQ(a.spec.padding, Padding::kSame);
  EXPECT_EQ(a.spec.activation, Activation::kGelu);
  ASSERT_TRUE(a.weights.batch_norm);
  EXPECT_EQ(a.weights.batch_norm->eps, 1e-3);
  EXPECT_EQ(a.weights.batch_norm->weight, std::vector<double>(3, 1.0));
  EXPECT_EQ(a.weights.batch_norm->bias, std::vector<double>(3, 0.0));
  EXPECT_EQ(a.weights.batch_norm->running_mean, std::vector<double>(3, 0.5));
  EXPECT_EQ(a.weights.batch_norm->running_var, std::vector<double>(3, 4.0));
  EXPECT_EQ(model.stack->layers()[1].spec.activation, Activation::kSoftmax);
}

TEST(ModelFile, KnowsEveryActivation) {
  for (const char* word : {"identity", "relu", "leaky_relu", "silu", "gelu", "tanh", "sigmoid", "softmax"}) {
    const Model model = ModelFiles().add_to_b(std::string("activation: ") + word).load();
    EXPECT_EQ(kernels::to_string(model.stack->layers()[1].spec.activation), word);
  }
}

TEST(ModelFile, ReadsResidualLayers) {
  ModelFiles files;
  files.replace("out_channels: 4", "out_channels: 3").replace("in_channels: 4", "in_channels: 3");
  files.add_to_a("residual: true");
  files.weights.remove("a.pw.weight").add("a.pw.weight", {3, 3, 1}, 1.0F);
  files.weights.remove("b.pw.weight").add("b.pw.weight", {2, 3, 1}, 1.0F);
  EXPECT_TRUE(files.load().stack->layers()[0].spec.residual);
}

TEST(ModelFile, LoadsEveryGoldenModel) {
  std::size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HALOTAP_TEST_DATA "/golden")) {
    SCOPED_TRACE(entry.path());
    std::ifstream stream(entry.path() / "case.json");
    const auto facts = nlohmann::json::parse(stream);
    const Model model = load_model(entry.path() / "model.yaml");
    EXPECT_EQ(model.name, facts["name"].get<std::string>());
    EXPECT_EQ(model.stack->parameters(), facts["params"].get<std::int64_t>());
    EXPECT_EQ(model.stack->receptive_field(), facts["receptive_field"].get<std::int64_t>());
    EXPECT_EQ(model.stack->lookahead_frames(), facts["lookahead_frames"].get<std::int64_t>());
    ++models;
  }
  EXPECT_EQ(models, 18U);
}

TEST(ModelFile, KeepsFloat64WeightsWhole) {
  ModelFiles files;
  files.weights.remove("b.pw.bias").add("b.pw.bias", "F64", {2}, bytes_of(std::vector<double>{0.1, 1e-300}));
  EXPECT_EQ(files.load().stack->layers()[1].weights.pw_bias, (std::vector<double>{0.1, 1e-300}));
}

TEST(ModelFile, TakesPointwiseWeightsOfALinearLayer) {
  ModelFiles files;
  files.weights.remove("b.pw.weight").add("b.pw.weight", {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(files.load().stack->layers()[1].weights.pw_weight, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ModelFile, TakesNeutralValuesOnPointwiseLayers) {
  ModelFiles files;
  files.add_to_b("kernel_size: 1\n    dilation: 1\n    padding: same\n    residual: false");
  EXPECT_EQ(files.load().stack->layers()[1].spec.padding, Padding::kCausal);
}

TEST(ModelFile, RefusesOtherValuesOnPointwiseLayers) {
  EXPECT_EQ(ModelFiles().add_to_b("kernel_size: 3").refused(),
            "m.yaml:11:5: layer 'b': kernel_size of a pointwise layer: expected 1, got 3");
  EXPECT_EQ(ModelFiles().add_to_b("dilation: 2").refused(),
            "m.yaml:11:5: layer 'b': dilation of a pointwise layer: expected 1, got 2");
  EXPECT_EQ(ModelFiles().add_to_b("residual: true").refused(),
            "m.yaml:11:5: layer 'b': residual of a pointwise layer: expected false, got true");
}

TEST(ModelFile, RenamesTensors) {
  ModelFiles files;
  files.add_to_a("tensors: {dw.weight: old/conv.w, bn.running_mean: norm.running_mean}").add_batch_norm();
  files.weights.remove("a.dw.weight").add("old/conv.w", {3, 1, 5}, 0.75F);
  files.weights.remove("a.bn.running_mean").add("norm.running_mean", {3}, 9.0F);
  files.weights.remove("a.bn.num_batches_tracked").add("norm.num_batches_tracked", "I64", {}, "12345678");
  const kernels::LayerWeights weights = files.load().stack->layers()[0].weights;
  EXPECT_EQ(weights.dw_weight[0], 0.75);
  EXPECT_EQ(weights.batch_norm->running_mean[0], 9.0);
}

TEST(ModelFile, RefusesRenamedTensorsThatAreNotThere) {
  EXPECT_EQ(ModelFiles().add_to_a("tensors: {dw.bias: gone}").refused(),
            "w.safetensors: tensor 'gone': expected shape [3] (dw.bias of layer 'a'), got no such tensor");
  EXPECT_EQ(ModelFiles().add_to_a("tensors: {dw.wait: gone}").refused(),
            "m.yaml:11:15: key 'layers.0.tensors.dw.wait': expected one of dw.weight, dw.bias, bn.weight, bn.bias, "
            "bn.running_mean, bn.running_var, pw.weight, pw.bias, got an unknown key");
  EXPECT_EQ(ModelFiles().add_to_b("tensors: {dw.weight: x}").refused(),
            "m.yaml:15:15: key 'layers.1.tensors.dw.weight': expected one of pw.weight, pw.bias, got an unknown key");
}

TEST(ModelFile, ReadsChannelNames) {
  ModelFiles files;
  files.yaml += "channels: [x, y, 3]\noutput_channels: [left, right]\n";
  const Model model = files.load();
  EXPECT_EQ(model.input_channels, (std::vector<std::string>{"x", "y", "3"}));
  EXPECT_EQ(model.output_channels, (std::vector<std::string>{"left", "right"}));
}

TEST(ModelFile, RefusesChannelNamesThatDoNotFit) {
  const auto refused_with = [](const std::string& line) {
    ModelFiles files;
    files.yaml += line + "\n";
    return files.refused();
  };
  EXPECT_EQ(refused_with("channels: [x, y]"), "m.yaml:15:11: key 'channels': expected 3 names, one a channel, got 2");
  EXPECT_EQ(refused_with("channels: [x, y, x]"),
            "m.yaml:15:18: key 'channels.2': expected a name of its own for each channel, got 'x'");
  EXPECT_EQ(refused_with("channels: [x, '', z]"), "m.yaml:15:15: key 'channels.1': expected text, got the text ''");
  EXPECT_EQ(refused_with("output_channels: [x]"),
            "m.yaml:15:18: key 'output_channels': expected 2 names, one a channel, got 1");
}

TEST(ModelFile, ChecksTheFormatBeforeAnythingElse) {
  ModelFiles files;
  files.replace("halotap-model/1", "halotap-model/2").replace("name: small", "new_key: small");
  EXPECT_EQ(files.refused(), "m.yaml:1:9: key 'format': expected 'halotap-model/1', got 'halotap-model/2'");
}

TEST(ModelFile, RefusesUnknownAndMissingKeys) {
  EXPECT_EQ(ModelFiles().replace("frame_rate: 100\n", "frame_rate: 100\nrate: 1\n").refused(),
            "m.yaml:4:1: key 'rate': expected one of format, name, frame_rate, weights, channels, output_channels, "
            "layers, got an unknown key");
  EXPECT_EQ(ModelFiles().add_to_a("stride: 2").refused(),
            "m.yaml:11:5: key 'layers.0.stride': expected one of name, type, in_channels, out_channels, kernel_size, "
            "dilation, padding, activation, residual, bn_eps, tensors, got an unknown key");
  EXPECT_EQ(ModelFiles().replace("frame_rate: 100\n", "").refused(),
            "m.yaml:1:1: key 'frame_rate': expected a value, got no such key");
  EXPECT_EQ(ModelFiles().replace("    kernel_size: 5\n", "").refused(),
            "m.yaml:6:5: key 'layers.0.kernel_size': expected a value, got no such key");
}

TEST(ModelFile, RefusesWrongValues) {
  EXPECT_EQ(ModelFiles().replace("frame_rate: 100", "frame_rate: .nan").refused(),
            "m.yaml:3:13: key 'frame_rate': expected a number above 0 and at most 1e+09, got '.nan'");
  EXPECT_EQ(ModelFiles().replace("frame_rate: 100", "frame_rate: 0").refused(),
            "m.yaml:3:13: key 'frame_rate': expected a number above 0 and at most 1e+09, got '0'");
  EXPECT_EQ(ModelFiles().replace("kernel_size: 5", "kernel_size: '5'").refused(),
            "m.yaml:10:18: key 'layers.0.kernel_size': expected an integer from 1 to 65536, got the text '5'");
  EXPECT_EQ(ModelFiles().replace("in_channels: 3", "in_channels: 1000000000").refused(),
            "m.yaml:8:18: key 'layers.0.in_channels': expected an integer from 1 to 16384, got '1000000000'");
  EXPECT_EQ(ModelFiles().replace("type: temporal_conv", "type: conv").refused(),
            "m.yaml:7:11: key 'layers.0.type': expected temporal_conv or pointwise, got 'conv'");
  EXPECT_EQ(ModelFiles().add_to_a("activation: swish").refused(),
            "m.yaml:11:17: key 'layers.0.activation': expected one of identity, relu, leaky_relu, silu, gelu, tanh, "
            "sigmoid or softmax, got 'swish'");
  EXPECT_EQ(ModelFiles().add_to_a("residual: 1").refused(),
            "m.yaml:11:15: key 'layers.0.residual': expected true or false, got '1'");
  EXPECT_EQ(ModelFiles().replace("name: small", "name: ''").refused(),
            "m.yaml:2:7: key 'name': expected text, got the text ''");
  EXPECT_EQ(ModelFiles().replace("weights: w.safetensors", "weights:").refused(),
            "m.yaml:4:1: key 'weights': expected text, got nothing");
}

TEST(ModelFile, RefusesFilesWithoutLayers) {
  ModelFiles files;
  files.yaml = files.yaml.substr(0, files.yaml.find("layers:")) + "layers: []\n";
  EXPECT_EQ(files.refused(), "m.yaml:5:9: key 'layers': expected a list of 1 to 4096, got 0");
}

TEST(ModelFile, RefusesLayersThatBreakARule) {
  EXPECT_EQ(ModelFiles().replace("kernel_size: 5", "kernel_size: 4\n    padding: same").refused(),
            "m.yaml:6:5: layer 'a': (kernel_size-1)*dilation with padding same: expected an even number, got 3");
  EXPECT_EQ(ModelFiles().add_to_a("residual: true").refused(),
            "m.yaml:6:5: layer 'a': residual: expected in_channels equal to out_channels, got 3 and 4");
  EXPECT_NE(ModelFiles().add_to_a("activation: softmax").refused().find("m.yaml:6:5: layer 'a': activation"),
            std::string::npos);
}

TEST(ModelFile, RefusesLayersThatDoNotFitTogether) {
  ModelFiles files;
  files.replace("in_channels: 4", "in_channels: 5");
  files.weights.remove("b.pw.weight").add("b.pw.weight", {2, 5, 1}, 1.0F);
  const std::string message = files.refused();
  EXPECT_EQ(message.find("m.yaml:6:3: key 'layers': layer 'b': in_channels"), 0U) << message;
  EXPECT_NE(message.find("'a'"), std::string::npos) << message;
}

TEST(ModelFile, RefusesLayersOfOneName) {
  ModelFiles files;
  files.replace("name: b", "name: a");
  files.weights = SafetensorsBuilder().add("a.dw.weight", {3, 1, 5}, 1.0F).add("a.pw.weight", {4, 3, 1}, 1.0F);
  files.replace("in_channels: 4", "in_channels: 3").replace("out_channels: 2", "out_channels: 4");
  EXPECT_NE(files.refused().find("m.yaml:6:3: key 'layers': layer 'a': name"), std::string::npos) << files.refused();
}

TEST(ModelFile, RefusesMissingTensors) {
  ModelFiles files;
  files.weights.remove("a.dw.weight");
  EXPECT_EQ(files.refused(),
            "w.safetensors: tensor 'a.dw.weight': expected shape [3,1,5] (dw.weight of layer 'a'), got no such tensor");
}

TEST(ModelFile, RefusesWrongShapes) {
  ModelFiles files;
  files.weights.remove("a.pw.weight").add("a.pw.weight", {3, 4, 1}, 1.0F);
  EXPECT_EQ(
      files.refused(),
      "w.safetensors: tensor 'a.pw.weight': expected shape [4,3,1] or [4,3] (pw.weight of layer 'a'), got [3,4,1]");
  files.weights.remove("a.dw.weight").add("a.dw.weight", {3, 5}, 1.0F);
  EXPECT_EQ(files.refused(),
            "w.safetensors: tensor 'a.dw.weight': expected shape [3,1,5] (dw.weight of layer 'a'), got [3,5]");
  files.replace("kernel_size: 5", "kernel_size: 65536");
  EXPECT_NE(files.refused().find("expected shape [3,1,65536]"), std::string::npos);
}

TEST(ModelFile, RefusesOtherNumberTypes) {
  ModelFiles files;
  files.weights.remove("b.pw.bias").add("b.pw.bias", "I32", {2}, "12345678");
  EXPECT_EQ(files.refused(), "w.safetensors: tensor 'b.pw.bias': dtype: expected F16, BF16, F32 or F64, got I32");
}

TEST(ModelFile, RefusesUnusedTensors) {
  ModelFiles files;
  files.weights.add("a.dw.bais", {3}, 0.0F);
  EXPECT_EQ(files.refused(), "w.safetensors: expected only tensors that a layer uses, got 'a.dw.bais'");
  files.weights.add("u2", {1}, 0.0F).add("u3", {1}, 0.0F).add("u4", {1}, 0.0F).add("u5", {1}, 0.0F);
  EXPECT_EQ(files.refused(),
            "w.safetensors: expected only tensors that a layer uses, got 'a.dw.bais', 'u2', 'u3' and 2 more");
}

TEST(ModelFile, RefusesBatchNormOnPointwiseLayersAndCountersWithoutIt) {
  ModelFiles files;
  files.weights.add("b.bn.weight", {4}, 1.0F);
  EXPECT_EQ(files.refused(), "w.safetensors: expected only tensors that a layer uses, got 'b.bn.weight'");
  ModelFiles counter;
  counter.weights.add("a.bn.num_batches_tracked", "I64", {}, "12345678");
  EXPECT_EQ(counter.refused(),
            "w.safetensors: expected only tensors that a layer uses, got 'a.bn.num_batches_tracked'");
}

TEST(ModelFile, RefusesHalfABatchNorm) {
  for (const char* missing : {"a.bn.weight", "a.bn.bias", "a.bn.running_mean", "a.bn.running_var"}) {
    ModelFiles files;
    files.add_batch_norm().weights.remove(missing);
    EXPECT_EQ(files.refused(), std::string("w.safetensors: tensor '") + missing + "': expected shape [3] (" +
                                   (missing + 2) + " of layer 'a'), got no such tensor");
  }
}

TEST(ModelFile, RefusesAnEpsilonThatNothingUses) {
  EXPECT_EQ(ModelFiles().add_to_a("bn_eps: 1e-3").refused(),
            "m.yaml:11:13: key 'layers.0.bn_eps': expected a layer with batch norm tensors, got one without");
  EXPECT_EQ(ModelFiles().add_to_a("bn_eps: 0").add_batch_norm().refused(),
            "m.yaml:11:13: key 'layers.0.bn_eps': expected a number above 0 and at most 1e+09, got '0'");
}

TEST(ModelFile, RefusesNegativeVariances) {
  ModelFiles files;
  files.add_batch_norm().weights.remove("a.bn.running_var").add("a.bn.running_var", {3}, {1, -1, 1});
  EXPECT_EQ(files.refused().find("m.yaml:6:5: layer 'a': bn.running_var[1]: expected"), 0U) << files.refused();
}

TEST(ModelFile, RefusesWeightsThatAreNotFinite) {
  ModelFiles files;
  files.weights.remove("a.dw.weight").add("a.dw.weight", {3, 1, 5}, [] {
    std::vector<float> numbers(15, 1.0F);
    numbers[12] = NAN;
    return numbers;
  }());
  EXPECT_EQ(files.refused(), "w.safetensors: tensor 'a.dw.weight': expected finite numbers, got nan at [2,0,2]");
  files.weights.remove("a.dw.weight").add("a.dw.weight", {3, 1, 5}, -INFINITY);
  EXPECT_EQ(files.refused(), "w.safetensors: tensor 'a.dw.weight': expected finite numbers, got -inf at [0,0,0]");
}

TEST(ModelFile, RefusesNumbersThatFloat32CannotHold) {
  ModelFiles files;
  files.weights.remove("b.pw.bias").add("b.pw.bias", "F64", {2}, bytes_of(std::vector<double>{0, 1e300}));
  EXPECT_EQ(files.refused().find("m.yaml:11:5: layer 'b': pw.bias[1]: expected"), 0U) << files.refused();
}

TEST(ModelFile, RefusesWeightsThatAreNoFile) {
  EXPECT_EQ(ModelFiles().replace("w.safetensors", "no.safetensors").refused(),
            "no.safetensors: expected a readable file, got: No such file or directory");
  EXPECT_NE(ModelFiles().replace("w.safetensors", ".").refused().find("expected a regular file, got a directory"),
            std::string::npos);
  EXPECT_NE(ModelFiles().replace("w.safetensors", "m.yaml").refused().find("header length"), std::string::npos);
}

}  // namespace
}  // namespace halotap::pipeline
