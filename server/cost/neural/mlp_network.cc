#include "server/cost/neural/mlp_network.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/relu.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace neuroshard {
namespace {

// Rows that run through the layers together: the hidden layers of a block stay in the cache, and a
// large batch takes no more memory than its input and output.
constexpr std::int64_t kBlockRows = 1024;

at::Tensor View(const float* data, at::IntArrayRef shape) {
  // from_blob takes what it may write to; inputs are only read.
  return at::from_blob(const_cast<float*>(data), shape, at::TensorOptions(at::kFloat));
}

at::Tensor AsDoubles(const Tensor& tensor) {
  return View(tensor.values.data(), tensor.shape).to(at::kDouble);
}

}  // namespace

MlpNetwork::MlpNetwork(const TensorFile& file, std::string_view prefix,
                       const std::vector<std::int64_t>& widths, LastLayer last_layer)
    : widths_(widths), last_layer_(last_layer) {
  const c10::InferenceMode inference;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const Tensor& weight = file.tensors.at(fmt::format("{}.{}.weight", prefix, i));
    const Tensor& bias = file.tensors.at(fmt::format("{}.{}.bias", prefix, i));
    layers_.push_back({AsDoubles(weight).t().contiguous(), AsDoubles(bias)});
  }
}

void MlpNetwork::Run(std::int64_t n, std::span<const float> in, std::span<float> out) const {
  assert(static_cast<std::int64_t>(in.size()) == n * input_width());
  assert(static_cast<std::int64_t>(out.size()) == n * output_width());
  const c10::InferenceMode inference;
  for (std::int64_t row = 0; row < n; row += kBlockRows) {
    RunBlock(std::min(kBlockRows, n - row), in.data() + row * input_width(),
             out.data() + row * output_width());
  }
}

void MlpNetwork::RunBlock(std::int64_t n, const float* in, float* out) const {
  at::Tensor x = View(in, {n, input_width()}).to(at::kDouble);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = at::addmm(layers_[i].bias, x, layers_[i].weight);
    if (i + 1 < layers_.size() || last_layer_ == LastLayer::kRelu) at::relu_(x);
  }
  View(out, {n, output_width()}).copy_(x);
}

}  // namespace neuroshard
