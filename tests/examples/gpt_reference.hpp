#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "gpt_config.hpp"

namespace weft::test {

/// The GPT's loss in double precision, one token at a time with plain loops: shares no code with the model it judges.
class GptReference {
 public:
  using Tensor = std::vector<double>;

  GptReference(train_gpt::GptConfig const& config, std::vector<Tensor> const& parameters)
      : c_(config), p_(parameters) {}

  /// Mean cross-entropy over all positions of all sequences.
  [[nodiscard]] double loss(std::span<std::uint8_t const> inputs, std::span<std::uint8_t const> targets) const {
    auto const seq = static_cast<std::size_t>(c_.seq);
    double total = 0;
    for (std::size_t first = 0; first < inputs.size(); first += seq) {
      total += sequence_loss(inputs.subspan(first, seq), targets.subspan(first, seq));
    }
    return total / static_cast<double>(inputs.size());
  }

 private:
  using Rows = std::vector<Tensor>;

  [[nodiscard]] Tensor normalise(Tensor const& x, Tensor const& w, Tensor const& b) const {
    double mean = 0, variance = 0;
    for (double v : x) mean += v / static_cast<double>(x.size());
    for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Tensor y;
    for (std::size_t j = 0; j < x.size(); ++j) y.push_back((x[j] - mean) / std::sqrt(variance + 1e-5) * w[j] + b[j]);
    return y;
  }

  [[nodiscard]] static Tensor multiply(Tensor const& x, Tensor const& w, std::size_t out, Tensor const* b) {
    Tensor y = b != nullptr ? *b : Tensor(out, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < out; ++j) y[j] += x[i] * w[i * out + j];
    }
    return y;
  }

  /// Token t looks at tokens 0 to t.
  [[nodiscard]] Tensor attend(Rows const& qkv, std::size_t t) const {
    auto const width = static_cast<std::size_t>(c_.width), head = width / static_cast<std::size_t>(c_.heads);
    Tensor y(width, 0.0);
    for (std::size_t from = 0; from < width; from += head) {
      Tensor weight;
      double sum = 0;
      for (std::size_t u = 0; u <= t; ++u) {
        double score = 0;
        for (std::size_t j = from; j < from + head; ++j) score += qkv[t][j] * qkv[u][width + j];
        weight.push_back(std::exp(score / std::sqrt(static_cast<double>(head))));
        sum += weight.back();
      }
      for (std::size_t u = 0; u <= t; ++u) {
        for (std::size_t j = from; j < from + head; ++j) y[j] += weight[u] / sum * qkv[u][2 * width + j];
      }
    }
    return y;
  }

  void block(Rows& x, std::size_t layer) const {
    auto const width = static_cast<std::size_t>(c_.width);
    Tensor const* p = &p_[2 + 12 * layer];
    Rows qkv;
    for (Tensor const& row : x) qkv.push_back(multiply(normalise(row, p[0], p[1]), p[2], 3 * width, &p[3]));
    for (std::size_t t = 0; t < x.size(); ++t) add(x[t], multiply(attend(qkv, t), p[4], width, &p[5]));
    for (Tensor& row : x) {
      Tensor hidden = multiply(normalise(row, p[6], p[7]), p[8], 4 * width, &p[9]);
      for (double& h : hidden) h = 0.5 * h * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (h + 0.044715 * h * h * h)));
      add(row, multiply(hidden, p[10], width, &p[11]));
    }
  }

  static void add(Tensor& to, Tensor const& what) {
    for (std::size_t j = 0; j < to.size(); ++j) to[j] += what[j];
  }

  [[nodiscard]] double sequence_loss(std::span<std::uint8_t const> inputs,
                                     std::span<std::uint8_t const> targets) const {
    auto const width = static_cast<std::size_t>(c_.width);
    Rows x;
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      Tensor row(width);
      for (std::size_t j = 0; j < width; ++j) row[j] = p_[0][inputs[t] * width + j] + p_[1][t * width + j];
      x.push_back(row);
    }
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(c_.layers); ++layer) block(x, layer);
    Tensor const* p = &p_[2 + 12 * static_cast<std::size_t>(c_.layers)];
    double total = 0;
    for (std::size_t t = 0; t < x.size(); ++t) {
      Tensor const logits = multiply(normalise(x[t], p[0], p[1]), p[2], 256, nullptr);
      double sum = 0;
      for (double l : logits) sum += std::exp(l);
      total += std::log(sum) - logits[targets[t]];
    }
    return total;
  }

  train_gpt::GptConfig const& c_;
  std::vector<Tensor> const& p_;
};

}  // namespace weft::test
