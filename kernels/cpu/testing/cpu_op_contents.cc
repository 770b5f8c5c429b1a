#include "kernels/cpu/testing/cpu_op_contents.h"

#include <algorithm>

namespace neuroshard::testing {
namespace {

// Calls visit(the table's row, the slot's row) for each slot that holds a row.
template <typename Visit>
void ForEachSlot(const HostTable& table, std::int64_t cols, const Visit& visit) {
  for (std::int64_t slot = 0; slot < table.num_slots(); ++slot) {
    const std::int64_t row = table.slot_rows()[slot];
    if (row != RowCache::kNoRow) visit(row * cols, table.rows() + slot * cols);
  }
}

void CopyWeights(const HostTable& table, std::int64_t cols, std::span<float> weights) {
  std::ranges::copy(table.table_weights(), weights.begin());
  ForEachSlot(table, cols,
              [&](std::int64_t row, const float* slot) { std::copy_n(slot, cols, &weights[row]); });
}

void SetWeightsOf(const HostTable& table, std::int64_t cols, std::span<const float> weights) {
  std::ranges::copy(weights, table.table_weights().begin());
  ForEachSlot(table, cols,
              [&](std::int64_t row, float* slot) { std::copy_n(&weights[row], cols, slot); });
}

}  // namespace

std::vector<float> CpuOpContents::Output() const {
  std::vector<float> output(op_.output_.begin(), op_.output_.end());
  for (const CpuEmbeddingOp::TableData& table : op_.tables_) {
    output.insert(output.end(), table.vectors.begin(), table.vectors.end());
  }
  return output;
}

Status CpuOpContents::SetOutputGradient(std::span<const float> gradient) {
  std::size_t values = op_.output_gradient_.size();
  for (const CpuEmbeddingOp::TableData& table : op_.tables_)
    values += table.vector_gradients.size();
  if (gradient.size() != values) {
    return InvalidArgument("the gradient has {} values, the output {}", gradient.size(), values);
  }
  const auto copy = [&gradient](std::span<float> to) {
    std::copy_n(gradient.begin(), to.size(), to.begin());
    gradient = gradient.subspan(to.size());
  };
  copy(op_.output_gradient_);
  for (const CpuEmbeddingOp::TableData& table : op_.tables_) copy(table.vector_gradients);
  return absl::OkStatus();
}

Status CpuOpContents::CheckTable(int table) const {
  if (table >= 0 && table < static_cast<int>(op_.tables_.size())) return absl::OkStatus();
  return InvalidArgument("table: must be in [0, {}), got {}", op_.tables_.size(), table);
}

std::vector<float> CpuOpContents::Weights(int table) const {
  if (!CheckTable(table).ok()) return {};
  const CpuEmbeddingOp::TableData& data = op_.tables_[table];
  if (!data.host) return {data.weights.begin(), data.weights.end()};
  std::vector<float> weights(data.host->table_weights().size());
  CopyWeights(*data.host, data.cols, weights);
  return weights;
}

Status CpuOpContents::SetWeights(int table, std::span<const float> weights) {
  NS_RETURN_IF_ERROR(CheckTable(table));
  CpuEmbeddingOp::TableData& data = op_.tables_[table];
  if (static_cast<std::int64_t>(weights.size()) != data.rows * data.cols) {
    return InvalidArgument("{} weights for a table of {} x {}", weights.size(), data.rows,
                           data.cols);
  }
  if (data.host) {
    SetWeightsOf(*data.host, data.cols, weights);
  } else {
    std::copy(weights.begin(), weights.end(), data.weights.begin());
  }
  return absl::OkStatus();
}

std::vector<float> CpuOpContents::OptimizerState(int table) const {
  if (!CheckTable(table).ok()) return {};
  const CpuEmbeddingOp::TableData& data = op_.tables_[table];
  std::vector<float> state(data.momentum1.begin(), data.momentum1.end());
  state.insert(state.end(), data.momentum2.begin(), data.momentum2.end());
  return state;
}

std::vector<std::int64_t> CpuOpContents::SlotRows(int table) const {
  if (!CheckTable(table).ok() || op_.tables_[table].host == nullptr) return {};
  const HostTable& host = *op_.tables_[table].host;
  return {host.slot_rows(), host.slot_rows() + host.num_slots()};
}

}  // namespace neuroshard::testing
