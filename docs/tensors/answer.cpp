// Answers the questions of `conform ask --layer post-relu --dtype float32`.
#include "tensors.hpp"

int main() {
  Tensors asked("asked.safetensors"), answers;
  answers.add("asked", asked.bytes("asked"));
  for (const std::string& question : asked.ending_with("/x")) {
    auto p = [&, group = question.substr(0, question.find('/'))](const std::string& name) {
      return asked.floats(group + "/parameters/" + name);
    };
    const Floats x = asked.floats(question + "/x"), bias = asked.floats(question + "/bias");
    const Bytes mask = asked.bytes(question + "/mask");
    const size_t B = mask.shape[0], H = mask.shape[1], S = mask.shape[2], D = x.shape[2], d = D / H;
    const Floats q = linear(x, p("attention.query.weight"), p("attention.query.bias"));
    const Floats k = linear(x, p("attention.key.weight"), p("attention.key.bias"));
    const Floats v = linear(x, p("attention.value.weight"), p("attention.value.bias"));
    Floats context = zeros(x.shape);
    for (size_t b = 0; b < B; ++b) for (size_t h = 0; h < H; ++h) for (size_t i = 0; i < S; ++i) {
      std::vector<float> weights(S, 0.0f);
      float largest = -INFINITY, total = 0;
      for (size_t j = 0; j < S; ++j) {
        for (size_t c = h * d; c < (h + 1) * d; ++c) weights[j] += q[(b * S + i) * D + c] * k[(b * S + j) * D + c];
        const size_t at = ((b * H + h) * S + i) * S + j;
        weights[j] = mask[at] ? weights[j] / std::sqrt(float(d)) + (bias.empty() ? 0 : bias[at]) : -INFINITY;
        largest = std::max(largest, weights[j]);
      }
      for (float& weight : weights) total += weight = std::exp(weight - largest);
      for (size_t j = 0; j < S; ++j) for (size_t c = h * d; c < (h + 1) * d && weights[j] > 0; ++c)
        context[(b * S + i) * D + c] += weights[j] / total * v[(b * S + j) * D + c];
    }
    const Floats attended = linear(context, p("attention.output.weight"), p("attention.output.bias"));
    const Floats middle = norm(sum(x, attended), p("norm1.gain"), p("norm1.shift"), 1e-5f);
    Floats hidden = linear(middle, p("feed_forward.hidden.weight"), p("feed_forward.hidden.bias"));
    for (float& value : hidden) value = std::max(value, 0.0f);
    const Floats fed = linear(hidden, p("feed_forward.output.weight"), p("feed_forward.output.bias"));
    answers.add(question + "/output", norm(sum(middle, fed), p("norm2.gain"), p("norm2.shift"), 1e-5f));
  }
  answers.save("answers.safetensors");
}
