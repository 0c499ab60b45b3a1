// safetensors in C++17 without any library, and the steps of an encoder layer; answer.cpp is what a user writes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

template <class T>
struct Tensor : std::vector<T> {
  std::vector<size_t> shape;
};
using Floats = Tensor<float>;
using Bytes = Tensor<uint8_t>;

inline Floats zeros(const std::vector<size_t>& shape) {
  Floats made;
  size_t size = 1;
  for (size_t n : shape) size *= n;
  made.resize(size);
  made.shape = shape;
  return made;
}

inline Floats linear(const Floats& x, const Floats& weight, const Floats& bias) {  // weight [in, out]
  const size_t in = weight.shape[0], out = weight.shape[1];
  std::vector<size_t> shape = x.shape;
  shape.back() = out;
  Floats y = zeros(shape);
  for (size_t row = 0; row < x.size() / in; ++row)
    for (size_t o = 0; o < out; ++o) {
      float total = 0;
      for (size_t i = 0; i < in; ++i) total += x[row * in + i] * weight[i * out + o];
      y[row * out + o] = total + bias[o];
    }
  return y;
}

inline Floats sum(Floats one, const Floats& other) {
  for (size_t i = 0; i < one.size(); ++i) one[i] += other[i];
  return one;
}

inline Floats norm(Floats x, const Floats& gain, const Floats& shift, float epsilon) {
  const size_t D = gain.size();
  for (size_t row = 0; row < x.size(); row += D) {
    float mean = 0, variance = 0;
    for (size_t i = 0; i < D; ++i) mean += x[row + i] / D;
    for (size_t i = 0; i < D; ++i) variance += (x[row + i] - mean) * (x[row + i] - mean) / D;
    for (size_t i = 0; i < D; ++i) x[row + i] = (x[row + i] - mean) / std::sqrt(variance + epsilon) * gain[i] + shift[i];
  }
  return x;
}

class Tensors {  // 8 bytes of length, a JSON header of names, the data
 public:
  Tensors() = default;
  explicit Tensors(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    uint64_t length = 0;
    if (!file.read(reinterpret_cast<char*>(&length), 8)) throw std::runtime_error("cannot read " + path);
    std::string header(length, ' ');
    file.read(header.data(), length);
    std::string rest((std::istreambuf_iterator<char>(file)), {});
    const std::regex entry(R"re("([^"]+)":\{"dtype":"(\w+)","shape":\[([\d,]*)\],"data_offsets":\[(\d+),(\d+)\]\})re");
    for (std::sregex_iterator at(header.begin(), header.end(), entry), end; at != end; ++at) {
      Entry found{(*at)[2], {}, rest.substr(std::stoull((*at)[4]), std::stoull((*at)[5]) - std::stoull((*at)[4]))};
      const std::string sizes = (*at)[3];
      const std::regex number(R"(\d+)");
      for (std::sregex_iterator n(sizes.begin(), sizes.end(), number), last; n != last; ++n)
        found.shape.push_back(std::stoull(n->str()));
      entries_[(*at)[1]] = found;
    }
  }
  std::vector<std::string> ending_with(const std::string& end) const {  // names, without that end
    std::vector<std::string> found;
    for (const auto& [name, entry] : entries_)
      if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
        found.push_back(name.substr(0, name.size() - end.size()));
    return found;
  }
  Floats floats(const std::string& name) const { return read<float>(name); }  // empty where there is none
  Bytes bytes(const std::string& name) const { return read<uint8_t>(name); }
  void add(const std::string& name, const Floats& value) { write(name, "F32", value); }
  void add(const std::string& name, const Bytes& value) { write(name, "U8", value); }
  void save(const std::string& path) const {
    std::string header = "{", data;
    for (const auto& [name, entry] : entries_) {
      std::string shape;
      for (size_t n : entry.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
      header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + entry.dtype + "\",\"shape\":[" + shape +
                "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
      data += entry.data;
      header += std::to_string(data.size()) + "]}";
    }
    header += "}";
    const uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8) << header << data;
  }

 private:
  struct Entry {
    std::string dtype;
    std::vector<size_t> shape;
    std::string data;
  };
  template <class T>
  Tensor<T> read(const std::string& name) const {
    Tensor<T> value;
    const auto at = entries_.find(name);
    if (at == entries_.end()) return value;
    value.resize(at->second.data.size() / sizeof(T));
    std::memcpy(value.data(), at->second.data.data(), at->second.data.size());
    value.shape = at->second.shape;
    return value;
  }
  template <class T>
  void write(const std::string& name, const std::string& dtype, const Tensor<T>& value) {
    entries_[name] = {dtype, value.shape, {reinterpret_cast<const char*>(value.data()), value.size() * sizeof(T)}};
  }
  std::map<std::string, Entry> entries_;
};
