#include "kernels/cuda/testing/gpu_op_contents.h"

#include <algorithm>
#include <cstring>

namespace neuroshard::testing {
namespace {

using cuda::GpuEmbeddingOp;
using cuda::GpuRowCaches;
using cuda::kVector;
using cuda::NumberType;

template <typename Raw>
float StoredToFloat(NumberType type, Raw raw) {
  return type == NumberType::kFp16 ? Fp16ToFloat(raw) : Bf16ToFloat(raw);
}

}  // namespace

std::int64_t GpuOpContents::OutputSize() const {
  std::int64_t size = 0;
  for (const GpuEmbeddingOp::TableData& table : op_.tables_) {
    size += (table.pooled() ? op_.spec_.batch_size : table.num_unpooled) * table.spec.cols;
  }
  return size;
}

std::vector<float> GpuOpContents::Output() const {
  std::vector<float> output;
  output.reserve(OutputSize());
  std::vector<float> padded(op_.spec_.batch_size * op_.device_cols_);
  if (!op_.gpu_->CopyOut(padded.data(), op_.output_, static_cast<std::int64_t>(padded.size()) * 4)
           .ok()) {
    return {};
  }
  for (std::int64_t b = 0; b < op_.spec_.batch_size; ++b) {
    for (const GpuEmbeddingOp::TableData& table : op_.tables_) {
      if (!table.pooled()) continue;
      const auto begin = padded.begin() + b * op_.device_cols_ + (table.output - op_.output_);
      output.insert(output.end(), begin, begin + table.spec.cols);
    }
  }
  for (const GpuEmbeddingOp::TableData& table : op_.tables_) {
    if (table.pooled() || table.num_unpooled == 0) continue;
    const std::vector<float> rows =
        CopyRows(table.output, table.num_unpooled, table.stride, table.spec.cols);
    output.insert(output.end(), rows.begin(), rows.end());
  }
  return output;
}

Status GpuOpContents::SetOutputGradient(std::span<const float> gradient) {
  if (static_cast<std::int64_t>(gradient.size()) != OutputSize()) {
    return InvalidArgument("the gradient has {} values, the output {}", gradient.size(),
                           OutputSize());
  }
  std::vector<float> padded(op_.spec_.batch_size * op_.device_cols_);
  const auto copy_in = [&](float* to) {
    return op_.gpu_->CopyIn(to, padded.data(), static_cast<std::int64_t>(padded.size()) * 4);
  };
  auto from = gradient.begin();
  const auto next_row = [&](const GpuEmbeddingOp::TableData& table, std::int64_t at) {
    std::copy_n(from, table.spec.cols, padded.begin() + at);
    from += table.spec.cols;
  };
  for (std::int64_t b = 0; b < op_.spec_.batch_size; ++b) {
    for (const GpuEmbeddingOp::TableData& table : op_.tables_) {
      if (table.pooled())
        next_row(table, b * op_.device_cols_ + (table.gradient - op_.output_gradient_));
    }
  }
  NS_RETURN_IF_ERROR(copy_in(op_.output_gradient_));
  for (const GpuEmbeddingOp::TableData& table : op_.tables_) {
    if (table.pooled()) continue;
    padded.assign(table.num_unpooled * table.stride, 0);
    for (std::int64_t i = 0; i < table.num_unpooled; ++i) next_row(table, i * table.stride);
    NS_RETURN_IF_ERROR(copy_in(table.gradient));
  }
  return absl::OkStatus();
}

Status GpuOpContents::CheckTable(int table) const {
  if (table >= 0 && table < static_cast<int>(op_.tables_.size())) return absl::OkStatus();
  return InvalidArgument("table: must be in [0, {}), got {}", op_.tables_.size(), table);
}

std::vector<float> GpuOpContents::Weights(int table) const {
  if (!CheckTable(table).ok()) return {};
  const GpuEmbeddingOp::TableData& data = op_.tables_[table];
  const std::int64_t stride = std::int64_t{data.vectors} * kVector;
  std::vector<std::byte> stored(data.spec.rows * stride * cuda::BytesOf(data.type));
  if (!op_.gpu_->CopyOut(stored.data(), data.weights, static_cast<std::int64_t>(stored.size()))
           .ok()) {
    return {};
  }
  if (!CopySlotsOut(table, stored).ok()) return {};
  std::vector<float> weights;
  weights.reserve(data.spec.rows * data.spec.cols);
  for (std::int64_t row = 0; row < data.spec.rows; ++row) {
    for (std::int64_t col = 0; col < data.spec.cols; ++col) {
      const std::int64_t i = row * stride + col;
      if (data.type == NumberType::kFp32) {
        weights.push_back(reinterpret_cast<const float*>(stored.data())[i]);
      } else {
        weights.push_back(
            StoredToFloat(data.type, reinterpret_cast<const std::uint16_t*>(stored.data())[i]));
      }
    }
  }
  return weights;
}

Status GpuOpContents::SetWeights(int table, std::span<const float> weights) {
  NS_RETURN_IF_ERROR(CheckTable(table));
  const GpuEmbeddingOp::TableData& data = op_.tables_[table];
  if (static_cast<std::int64_t>(weights.size()) != data.spec.rows * data.spec.cols) {
    return InvalidArgument("{} weights for a table of {} x {}", weights.size(), data.spec.rows,
                           data.spec.cols);
  }
  const std::int64_t stride = std::int64_t{data.vectors} * kVector;
  std::vector<std::byte> stored(data.spec.rows * stride * cuda::BytesOf(data.type));
  for (std::int64_t row = 0; row < data.spec.rows; ++row) {
    for (std::int64_t col = 0; col < data.spec.cols; ++col) {
      const float value = weights[row * data.spec.cols + col];
      const std::int64_t i = row * stride + col;
      if (data.type == NumberType::kFp32) {
        reinterpret_cast<float*>(stored.data())[i] = value;
      } else {
        reinterpret_cast<std::uint16_t*>(stored.data())[i] =
            data.type == NumberType::kFp16 ? FloatToFp16(value) : FloatToBf16(value);
      }
    }
  }
  NS_RETURN_IF_ERROR(
      op_.gpu_->CopyIn(data.weights, stored.data(), static_cast<std::int64_t>(stored.size())));
  return CopySlotsIn(table, stored);
}

std::vector<float> GpuOpContents::CopyRows(const float* from, std::int64_t rows,
                                           std::int64_t stride, std::int64_t cols) const {
  std::vector<float> padded(rows * stride);
  if (!op_.gpu_->CopyOut(padded.data(), from, static_cast<std::int64_t>(padded.size()) * 4).ok()) {
    return {};
  }
  std::vector<float> values;
  values.reserve(rows * cols);
  for (auto row = padded.begin(); row != padded.end(); row += stride) {
    values.insert(values.end(), row, row + cols);
  }
  return values;
}

std::vector<float> GpuOpContents::OptimizerState(int table) const {
  if (!CheckTable(table).ok()) return {};
  const GpuEmbeddingOp::TableData& data = op_.tables_[table];
  std::vector<float> state;
  for (const float* moments : {data.momentum1, data.momentum2}) {
    if (moments == nullptr) continue;
    const std::vector<float> values =
        CopyRows(moments, data.spec.rows, std::int64_t{data.vectors} * kVector, data.spec.cols);
    state.insert(state.end(), values.begin(), values.end());
  }
  if (data.state != nullptr) {
    const std::vector<float> values = CopyRows(data.state, data.spec.rows, 1, 1);
    state.insert(state.end(), values.begin(), values.end());
  }
  return state;
}

std::vector<std::int64_t> GpuOpContents::SlotRows(int table) const {
  if (!CheckTable(table).ok()) return {};
  StatusOr<std::vector<std::int64_t>> rows = RowsOfSlots(table);
  return rows.ok() ? *std::move(rows) : std::vector<std::int64_t>();
}

StatusOr<std::vector<std::int64_t>> GpuOpContents::RowsOfSlots(std::size_t table) const {
  const GpuRowCaches::Cache* const cache = op_.caches_.Find(table);
  if (cache == nullptr) return std::vector<std::int64_t>();
  std::vector<std::int64_t> rows(cache->slots), batches(cache->slots);
  NS_RETURN_IF_ERROR(
      op_.gpu_->CopyOut(rows.data(), cache->on_device.row_of_slot, cache->slots * 8));
  NS_RETURN_IF_ERROR(
      op_.gpu_->CopyOut(batches.data(), cache->on_device.batch_of_slot, cache->slots * 8));
  for (std::int64_t slot = 0; slot < cache->slots; ++slot) {
    if (batches[slot] == 0) rows[slot] = kNoRow;
  }
  return rows;
}

Status GpuOpContents::CopySlotsOut(std::size_t table, std::vector<std::byte>& rows) const {
  const GpuRowCaches::Cache* const cache = op_.caches_.Find(table);
  if (cache == nullptr) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const std::vector<std::int64_t> row_of_slot, RowsOfSlots(table));
  const std::int64_t bytes = cache->row_bytes();
  std::vector<std::byte> slots(cache->slots * bytes);
  NS_RETURN_IF_ERROR(op_.gpu_->CopyOut(slots.data(), cache->on_device.slots, std::ssize(slots)));
  for (std::int64_t slot = 0; slot < cache->slots; ++slot) {
    if (row_of_slot[slot] == kNoRow) continue;
    std::memcpy(&rows[row_of_slot[slot] * bytes], &slots[slot * bytes], bytes);
  }
  return absl::OkStatus();
}

Status GpuOpContents::CopySlotsIn(std::size_t table, const std::vector<std::byte>& rows) {
  const GpuRowCaches::Cache* const cache = op_.caches_.Find(table);
  if (cache == nullptr) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const std::vector<std::int64_t> row_of_slot, RowsOfSlots(table));
  const std::int64_t bytes = cache->row_bytes();
  std::vector<std::byte> slots(cache->slots * bytes);
  for (std::int64_t slot = 0; slot < cache->slots; ++slot) {
    if (row_of_slot[slot] == kNoRow) continue;
    std::memcpy(&slots[slot * bytes], &rows[row_of_slot[slot] * bytes], bytes);
  }
  return op_.gpu_->CopyIn(cache->on_device.slots, slots.data(), std::ssize(slots));
}

}  // namespace neuroshard::testing
