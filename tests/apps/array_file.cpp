#include "array_file.hpp"

#include <cstring>
#include <fstream>
#include <regex>
#include <stdexcept>

#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

constexpr std::size_t kPreambleBytes = 10;  // magic, version, header length

template <typename Number>
std::vector<double> numbers_in(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(Number));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Number number;
    std::memcpy(&number, bytes.data() + i * sizeof(Number), sizeof(Number));
    values[i] = static_cast<double>(number);
  }
  return values;
}

template <typename Number>
std::string bytes_of(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(Number), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = static_cast<Number>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Number), &number, sizeof(Number));
  }
  return bytes;
}

}  // namespace

ArrayFile read_array(const std::filesystem::path& file) {
  const std::string bytes = test::ScratchFolder::content(file.string());
  if (bytes.size() < kPreambleBytes) throw std::runtime_error(file.string() + ": too short");
  const auto header_bytes =
      static_cast<std::size_t>(static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]));
  const std::string header = bytes.substr(kPreambleBytes, header_bytes);
  ArrayFile array;
  std::smatch match;
  if (!std::regex_search(header, match, std::regex("'descr': *'(<f[48])'"))) throw std::runtime_error(header);
  array.type = match[1];
  if (!std::regex_search(header, match, std::regex("'shape': *\\(([0-9, ]*)\\)"))) throw std::runtime_error(header);
  const std::string shape = match[1];
  const std::regex number("[0-9]+");
  for (std::sregex_iterator axis(shape.begin(), shape.end(), number), end; axis != end; ++axis) {
    array.shape.push_back(std::stoll(axis->str()));
  }
  const std::string data = bytes.substr(kPreambleBytes + header_bytes);
  array.values = array.type == "<f4" ? numbers_in<float>(data) : numbers_in<double>(data);
  return array;
}

void write_array(const std::filesystem::path& file, const ArrayFile& array) {
  std::string header = "{'descr': '" + array.type + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t axis : array.shape) header += std::to_string(axis) + ",";
  header += "), }";
  header.append(63 - (kPreambleBytes + header.size()) % 64, ' ');  // data begins at a multiple of 64
  header += '\n';
  std::string preamble = "\x93NUMPY";
  preamble += '\x01';
  preamble += '\0';
  preamble += static_cast<char>(header.size() % 256);
  preamble += static_cast<char>(header.size() / 256);
  std::ofstream(file, std::ios::binary) << preamble << header
                                        << (array.type == "<f4" ? bytes_of<float>(array.values)
                                                                : bytes_of<double>(array.values));
}

}  // namespace halotap::apps
