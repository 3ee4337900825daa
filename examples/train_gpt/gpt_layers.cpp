#include "gpt_layers.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vector_math.hpp"

namespace train_gpt {
namespace {

/// g ← keep·g before something is added to it; also clears NaN left in fresh memory when keep is 0.
void start_gradient(float* g, std::size_t count, float keep) {
  if (keep == 0.0F) {
    std::fill_n(g, count, 0.0F);
  }
}

/// u of gelu(x) = x·σ(2u), which equals x/2·(1 + tanh u).
float gelu_argument(float x) noexcept {
  return 0.7978845608F * (x + 0.044715F * x * x * x);
}

/// Turns one row of scores into probabilities over its first `used` columns; the rest become 0.
void softmax_row(float* row, int used, int columns) {
  float const top = *std::max_element(row, row + used);
  for (int j = 0; j < used; ++j) {
    row[j] = fast_exp(row[j] - top);
  }
  float sum = 0.0F;
  for (int j = 0; j < used; ++j) {
    sum += row[j];
  }
  float const inverse = 1.0F / sum;
  for (int j = 0; j < used; ++j) {
    row[j] *= inverse;
  }
  std::fill(row + used, row + columns, 0.0F);
}

}  // namespace

void linear_forward(float* y, float const* x, float const* w, float const* b, int rows, int in, int out) {
  if (b != nullptr) {
    for (int i = 0; i < rows; ++i) {
      std::copy_n(b, out, y + static_cast<std::size_t>(i) * static_cast<std::size_t>(out));
    }
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1.0F, x, in, w, out, b != nullptr ? 1.0F : 0.0F,
              y, out);
}

void linear_backward_weights(float* dw, float* db, float const* dy, float const* x, int rows, int in, int out,
                             float keep) {
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, in, out, rows, 1.0F, x, in, dy, out, keep, dw, out);
  if (db == nullptr) {
    return;
  }
  start_gradient(db, static_cast<std::size_t>(out), keep);
  for (int i = 0; i < rows; ++i, dy += out) {
    for (int j = 0; j < out; ++j) {
      db[j] += dy[j];
    }
  }
}

void linear_backward_input(float* dx, float const* dy, float const* w, int rows, int in, int out) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, in, out, 1.0F, dy, out, w, out, 0.0F, dx, in);
}

void layer_norm_forward(float* y, float* mean, float* rstd, float const* x, float const* w, float const* b, int rows,
                        int width) {
  constexpr float kEpsilon = 1e-5F;
  for (int i = 0; i < rows; ++i, x += width, y += width) {
    float sum = 0.0F;
    for (int j = 0; j < width; ++j) {
      sum += x[j];
    }
    float const m = sum / static_cast<float>(width);
    float squares = 0.0F;
    for (int j = 0; j < width; ++j) {
      squares += (x[j] - m) * (x[j] - m);
    }
    float const r = 1.0F / std::sqrt(squares / static_cast<float>(width) + kEpsilon);
    for (int j = 0; j < width; ++j) {
      y[j] = (x[j] - m) * r * w[j] + b[j];
    }
    mean[i] = m;
    rstd[i] = r;
  }
}

void layer_norm_backward_weights(float* dw, float* db, float const* dy, float const* x, float const* mean,
                                 float const* rstd, int rows, int width, float keep) {
  start_gradient(dw, static_cast<std::size_t>(width), keep);
  start_gradient(db, static_cast<std::size_t>(width), keep);
  for (int i = 0; i < rows; ++i, x += width, dy += width) {
    float const m = mean[i];
    float const r = rstd[i];
    for (int j = 0; j < width; ++j) {
      dw[j] += dy[j] * (x[j] - m) * r;
      db[j] += dy[j];
    }
  }
}

void layer_norm_backward_input(float* dx, float const* dy, float const* x, float const* mean, float const* rstd,
                               float const* w, int rows, int width) {
  float const inverse_width = 1.0F / static_cast<float>(width);
  for (int i = 0; i < rows; ++i, x += width, dy += width, dx += width) {
    float const m = mean[i];
    float const r = rstd[i];
    float sum = 0.0F;
    float projection = 0.0F;
    for (int j = 0; j < width; ++j) {
      sum += dy[j] * w[j];
      projection += dy[j] * w[j] * (x[j] - m) * r;
    }
    sum *= inverse_width;
    projection *= inverse_width;
    for (int j = 0; j < width; ++j) {
      dx[j] += r * (dy[j] * w[j] - sum - (x[j] - m) * r * projection);
    }
  }
}

void gelu_forward(float* y, float const* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = x[i] / (1.0F + fast_exp(-2.0F * gelu_argument(x[i])));
  }
}

void gelu_backward(float* dy, float const* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float const s = 1.0F / (1.0F + fast_exp(-2.0F * gelu_argument(x[i])));
    float const slope = 0.7978845608F * (1.0F + 3.0F * 0.044715F * x[i] * x[i]);
    dy[i] *= s + 2.0F * x[i] * s * (1.0F - s) * slope;
  }
}

void attention_forward(float* y, float* probabilities, float const* qkv, AttentionShape const& shape) {
  int const seq = shape.seq;
  int const width = shape.width();
  int const stride = 3 * width;
  float const scale = 1.0F / std::sqrt(static_cast<float>(shape.head_width));
  for (int b = 0; b < shape.batch; ++b) {
    for (int h = 0; h < shape.heads; ++h, probabilities += seq * seq) {
      float const* q = qkv + static_cast<std::ptrdiff_t>(b) * seq * stride + h * shape.head_width;
      float* out = y + static_cast<std::ptrdiff_t>(b) * seq * width + h * shape.head_width;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, seq, seq, shape.head_width, scale, q, stride, q + width,
                  stride, 0.0F, probabilities, seq);
      for (int t = 0; t < seq; ++t) {
        softmax_row(probabilities + t * seq, t + 1, seq);
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, seq, shape.head_width, seq, 1.0F, probabilities, seq,
                  q + 2 * width, stride, 0.0F, out, width);
    }
  }
}

void attention_backward(float* dqkv, float* scratch, float const* dy, float const* qkv, float const* probabilities,
                        AttentionShape const& shape) {
  int const seq = shape.seq;
  int const width = shape.width();
  int const stride = 3 * width;
  int const head = shape.head_width;
  float const scale = 1.0F / std::sqrt(static_cast<float>(head));
  for (int b = 0; b < shape.batch; ++b) {
    for (int h = 0; h < shape.heads; ++h, probabilities += seq * seq) {
      std::ptrdiff_t const at = static_cast<std::ptrdiff_t>(b) * seq * stride + h * head;
      float const* q = qkv + at;
      float* dq = dqkv + at;
      float const* dout = dy + static_cast<std::ptrdiff_t>(b) * seq * width + h * head;
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, seq, head, seq, 1.0F, probabilities, seq, dout, width, 0.0F,
                  dq + 2 * width, stride);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, seq, seq, head, 1.0F, dout, width, q + 2 * width, stride,
                  0.0F, scratch, seq);
      for (int t = 0; t < seq; ++t) {
        float const* p = probabilities + t * seq;
        float* ds = scratch + t * seq;
        float dot = 0.0F;
        for (int j = 0; j <= t; ++j) {
          dot += p[j] * ds[j];
        }
        for (int j = 0; j < seq; ++j) {
          ds[j] = p[j] * (ds[j] - dot);  // p is 0 beyond t
        }
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, seq, head, seq, scale, scratch, seq, q + width, stride,
                  0.0F, dq, stride);
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, seq, head, seq, scale, scratch, seq, q, stride, 0.0F,
                  dq + width, stride);
    }
  }
}

void embedding_forward(float* x, float const* tokens, float const* positions, std::span<std::uint8_t const> ids,
                       int seq, int width) {
  for (std::size_t i = 0; i < ids.size(); ++i, x += width) {
    float const* token = tokens + static_cast<std::ptrdiff_t>(ids[i]) * width;
    float const* position = positions + static_cast<std::ptrdiff_t>(i % static_cast<std::size_t>(seq)) * width;
    for (int j = 0; j < width; ++j) {
      x[j] = token[j] + position[j];
    }
  }
}

void token_embedding_backward(float* dtokens, float const* dx, std::span<std::uint8_t const> ids, int width,
                              int vocabulary, float keep) {
  start_gradient(dtokens, static_cast<std::size_t>(vocabulary) * static_cast<std::size_t>(width), keep);
  for (std::uint8_t const id : ids) {
    float* token = dtokens + static_cast<std::ptrdiff_t>(id) * width;
    for (int j = 0; j < width; ++j) {
      token[j] += dx[j];
    }
    dx += width;
  }
}

void position_embedding_backward(float* dpositions, float const* dx, int rows, int seq, int table_rows, int width,
                                 float keep) {
  start_gradient(dpositions, static_cast<std::size_t>(table_rows) * static_cast<std::size_t>(width), keep);
  for (int i = 0; i < rows; ++i, dx += width) {
    float* position = dpositions + static_cast<std::ptrdiff_t>(i % seq) * width;
    for (int j = 0; j < width; ++j) {
      position[j] += dx[j];
    }
  }
}

float cross_entropy(float const* logits, std::span<std::uint8_t const> targets, int vocabulary) {
  double total = 0.0;
  for (std::uint8_t const target : targets) {
    float const top = *std::max_element(logits, logits + vocabulary);
    float sum = 0.0F;
    for (int j = 0; j < vocabulary; ++j) {
      sum += fast_exp(logits[j] - top);
    }
    total += static_cast<double>(std::log(sum)) + static_cast<double>(top) - static_cast<double>(logits[target]);
    logits += vocabulary;
  }
  return static_cast<float>(total / static_cast<double>(targets.size()));
}

void cross_entropy_backward(float* logits, std::span<std::uint8_t const> targets, int vocabulary, float scale) {
  float const weight = scale / static_cast<float>(targets.size());
  for (std::uint8_t const target : targets) {
    softmax_row(logits, vocabulary, vocabulary);
    logits[target] -= 1.0F;
    for (int j = 0; j < vocabulary; ++j) {
      logits[j] *= weight;
    }
    logits += vocabulary;
  }
}

}  // namespace train_gpt
