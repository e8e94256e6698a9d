// Makes the bytes of safetensors files, sound and unsound.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace halotap::test {

// A file of the given header and data, with the true header length in front.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

class SafetensorsBuilder {
 public:
  SafetensorsBuilder& add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape,
                          const std::string& bytes) {
    tensors_.push_back({name, dtype, shape, bytes});
    return *this;
  }

  SafetensorsBuilder& add(const std::string& name, const std::vector<std::int64_t>& shape,
                          const std::vector<float>& numbers) {
    return add(name, "F32", shape, bytes_of(numbers));
  }

  // A tensor of one number throughout.
  SafetensorsBuilder& add(const std::string& name, const std::vector<std::int64_t>& shape, float number) {
    std::int64_t count = 1;
    for (const std::int64_t axis : shape) count *= axis;
    return add(name, shape, std::vector<float>(static_cast<std::size_t>(count), number));
  }

  SafetensorsBuilder& remove(const std::string& name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
    return *this;
  }

  std::string bytes() const {
    std::string header = "{";
    std::string data;
    for (const Tensor& tensor : tensors_) {
      if (header.size() > 1) header += ",";
      header += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
      for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        header += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
      }
      header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
      data += tensor.bytes;
      header += std::to_string(data.size()) + "]}";
    }
    return safetensors_bytes(header + "}", data);
  }

 private:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;
};

}  // namespace halotap::test
