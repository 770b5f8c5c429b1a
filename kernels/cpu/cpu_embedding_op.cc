#include "kernels/cpu/cpu_embedding_op.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "common/base/random.h"
#include "kernels/api/lookup_checks.h"
#include "kernels/cpu/embedding_kernels.h"
#include "kernels/cpu/row_sort.h"

namespace neuroshard {
namespace {

// Initial values repeat with this period: a prime, so that rows of any width differ, and short
// enough to stay in the L2 cache while gigabytes are filled at the speed of memory.
constexpr std::int64_t kPeriod = 16381;

// Values in [-limit, limit) on a grid, so none is denormal.
std::vector<float> RandomPeriod(std::uint64_t seed, double limit) {
  Random random(seed);
  std::vector<float> block(kPeriod + MemoryArena::kAlignmentBytes / 4);
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    block[i] =
        static_cast<float>(limit * (static_cast<double>(random.Below(1 << 24)) * 0x1.0p-23 - 1));
  }
  std::copy_n(block.begin(), block.size() - kPeriod, block.begin() + kPeriod);
  return block;
}

void FillRandom(std::span<float> values, std::uint64_t seed, double limit) {
  const std::vector<float> block = RandomPeriod(seed, limit);
  FillPeriodic(values.data(), static_cast<std::int64_t>(values.size()), block.data(), kPeriod, 0);
}

int BitsFor(std::int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
}

// Adds the arena block of a x b floats; a sum that is beyond any machine stays there instead of
// overflowing.
void AddBlock(std::int64_t a, std::int64_t b, std::int64_t& bytes) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t block;
  if (__builtin_mul_overflow(a, b, &block) || block > kFar / 4) {
    bytes = kFar;
  } else {
    bytes = std::min(kFar, bytes + MemoryArena::BlockBytes(block * 4));
  }
}

// Only fp32 weights.
Status CheckWeightTypes(const EmbeddingOpSpec& spec) {
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    if (spec.tables[i].weight_dtype != DataType::kFp32) {
      return InvalidArgument("tables[{}].weight_dtype: the cpu has fp32 only, got {}", i,
                             std::string(ToText(spec.tables[i].weight_dtype)));
    }
  }
  return absl::OkStatus();
}

// Of tables that fit the memory, so that one which does not is out of memory and not an error.
Status CheckSortKeys(const EmbeddingOpSpec& spec) {
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    if (BitsFor(spec.tables[i].rows) + BitsFor(spec.batch_size) > 64) {
      return InvalidArgument("tables[{}].rows: {} times the batch size {} is beyond 2^64", i,
                             spec.tables[i].rows, spec.batch_size);
    }
  }
  return absl::OkStatus();
}

std::int64_t NeededBytes(const EmbeddingOpSpec& spec) {
  std::int64_t bytes = 0, output_cols = 0;
  for (const EmbeddingTableSpec& table : spec.tables) {
    AddBlock(table.rows, table.cols, bytes);
    if (spec.optimizer == Optimizer::kRowwiseAdagrad) AddBlock(table.rows, 1, bytes);
    // Columns that overflow here have made `bytes` too large above.
    output_cols = std::min(output_cols, std::int64_t{1} << 61) + table.cols;
  }
  AddBlock(spec.batch_size, output_cols, bytes);
  AddBlock(spec.batch_size, output_cols, bytes);
  return bytes;
}

// The backward pass of such a table multiplies each occurrence's gradient by something.
bool HasKeyWeights(PoolingMode mode, const LookupBatch& batch) {
  return mode == PoolingMode::kMean || !batch.weights.empty();
}

}  // namespace

StatusOr<std::unique_ptr<CpuEmbeddingOp>> CpuEmbeddingOp::Create(std::shared_ptr<MemoryArena> arena,
                                                                 const EmbeddingOpSpec& spec) {
  NS_RETURN_IF_ERROR(CheckSpec(spec));
  NS_RETURN_IF_ERROR(CheckWeightTypes(spec));
  arena->Reset();
  NS_RETURN_IF_ERROR(Annotate(arena->CheckFits(NeededBytes(spec)), "embedding tables"));
  NS_RETURN_IF_ERROR(CheckSortKeys(spec));
  return std::unique_ptr<CpuEmbeddingOp>(new CpuEmbeddingOp(std::move(arena), spec));
}

CpuEmbeddingOp::CpuEmbeddingOp(std::shared_ptr<MemoryArena> arena, const EmbeddingOpSpec& spec)
    : arena_(std::move(arena)), spec_(spec), sample_bits_(BitsFor(spec.batch_size)) {
  Random seeds(spec_.seed);
  for (const EmbeddingTableSpec& table : spec_.tables) {
    TableData data = {table.rows, table.cols, output_cols_, table.pooling_mode, {}, {}};
    data.weights = TakeFloats(table.rows * table.cols);
    FillRandom(data.weights, seeds.Next(), 0.05);
    if (spec_.optimizer == Optimizer::kRowwiseAdagrad) {
      data.state = TakeFloats(table.rows);
      std::fill(data.state.begin(), data.state.end(), 0.0F);
    }
    output_cols_ += table.cols;
    tables_.push_back(data);
  }
  output_ = TakeFloats(spec_.batch_size * output_cols_);
  std::fill(output_.begin(), output_.end(), 0.0F);
  output_gradient_ = TakeFloats(spec_.batch_size * output_cols_);
  FillRandom(output_gradient_, seeds.Next(), 1e-3);
}

std::span<float> CpuEmbeddingOp::TakeFloats(std::int64_t count) {
  return {reinterpret_cast<float*>(arena_->Take(count * 4)), static_cast<std::size_t>(count)};
}

Status CpuEmbeddingOp::SetInputs(std::vector<LookupBatch> inputs) {
  NS_RETURN_IF_ERROR(CheckInputs(spec_, inputs));
  std::size_t keys = 0, key_weights = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    keys = std::max(keys, inputs[i].ids.size());
    if (HasKeyWeights(tables_[i].pooling_mode, inputs[i])) {
      key_weights = std::max(key_weights, inputs[i].ids.size());
    }
  }
  const std::size_t steps = spec_.optimizer == Optimizer::kRowwiseAdagrad ? keys : 0;
  NS_RETURN_IF_ERROR(Annotate(
      arena_->CheckFitsBeside(static_cast<std::int64_t>(keys * 16 + key_weights * 8 + steps * 4)),
      "sorting the ids"));
  keys_.resize(keys);
  spare_keys_.resize(keys);
  key_weights_.resize(key_weights);
  spare_key_weights_.resize(key_weights);
  steps_.resize(steps);
  inputs_ = std::move(inputs);
  return absl::OkStatus();
}

void CpuEmbeddingOp::Forward() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TableData& table = tables_[i];
    const LookupBatch& batch = inputs_[i];
    PoolArguments pool;
    pool.list.rows = table.weights.data();
    pool.list.stride = table.cols;
    pool.list.keys = reinterpret_cast<const std::uint64_t*>(batch.ids.data());  // not negative
    pool.list.key_weights = batch.weights.empty() ? nullptr : batch.weights.data();
    pool.list.num_keys = static_cast<std::int64_t>(batch.ids.size());
    pool.cols = table.cols;
    pool.offsets = batch.offsets.data();
    pool.batch_size = spec_.batch_size;
    pool.mean = table.pooling_mode == PoolingMode::kMean;
    pool.output = output_.data() + table.first_output_col;
    pool.output_stride = output_cols_;
    PoolRows(pool);
  }
}

void CpuEmbeddingOp::Backward() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) BackwardTable(tables_[i], inputs_[i]);
}

void CpuEmbeddingOp::BackwardTable(const TableData& table, const LookupBatch& batch) {
  const bool mean = table.pooling_mode == PoolingMode::kMean;
  const bool weighted = HasKeyWeights(table.pooling_mode, batch);
  for (std::int64_t sample = 0; sample < spec_.batch_size; ++sample) {
    const std::int64_t begin = batch.offsets[sample], end = batch.offsets[sample + 1];
    const float scale =
        mean ? 1.0F / static_cast<float>(std::max<std::int64_t>(1, end - begin)) : 1.0F;
    for (std::int64_t i = begin; i < end; ++i) {
      keys_[i] = static_cast<std::uint64_t>(batch.ids[i]) << sample_bits_ |
                 static_cast<std::uint64_t>(sample);
      if (weighted) key_weights_[i] = batch.weights.empty() ? scale : scale * batch.weights[i];
    }
  }
  const std::size_t num_keys = batch.ids.size(), num_weights = weighted ? num_keys : 0;
  const SortedRows sorted = SortByRow(
      {std::span(keys_).first(num_keys), std::span(key_weights_).first(num_weights)},
      {std::span(spare_keys_).first(num_keys), std::span(spare_key_weights_).first(num_weights)},
      sample_bits_, sample_bits_ + BitsFor(table.rows));
  UpdateArguments update;
  update.gradients.rows = output_gradient_.data() + table.first_output_col;
  update.gradients.stride = output_cols_;
  update.gradients.keys = sorted.keys.data();
  update.gradients.key_mask = (std::uint64_t{1} << sample_bits_) - 1;
  update.gradients.key_weights = weighted ? sorted.payload.data() : nullptr;
  update.gradients.num_keys = static_cast<std::int64_t>(num_keys);
  update.row_shift = sample_bits_;
  update.cols = table.cols;
  update.weights = table.weights.data();
  update.state = table.state.empty() ? nullptr : table.state.data();
  update.learning_rate = spec_.learning_rate;
  update.epsilon = spec_.epsilon;
  update.steps = steps_.data();
  UpdateRows(update);
}

std::vector<float> CpuEmbeddingOp::Output() const { return {output_.begin(), output_.end()}; }

Status CpuEmbeddingOp::SetOutputGradient(std::span<const float> gradient) {
  if (gradient.size() != output_gradient_.size()) {
    return InvalidArgument("the gradient has {} values, the output {}", gradient.size(),
                           output_gradient_.size());
  }
  std::copy(gradient.begin(), gradient.end(), output_gradient_.begin());
  return absl::OkStatus();
}

Status CpuEmbeddingOp::CheckTable(int table) const {
  if (table >= 0 && table < static_cast<int>(tables_.size())) return absl::OkStatus();
  return InvalidArgument("table: must be in [0, {}), got {}", tables_.size(), table);
}

std::vector<float> CpuEmbeddingOp::Weights(int table) const {
  if (!CheckTable(table).ok()) return {};
  return {tables_[table].weights.begin(), tables_[table].weights.end()};
}

Status CpuEmbeddingOp::SetWeights(int table, std::span<const float> weights) {
  NS_RETURN_IF_ERROR(CheckTable(table));
  if (weights.size() != tables_[table].weights.size()) {
    return InvalidArgument("{} weights for a table of {} x {}", weights.size(), tables_[table].rows,
                           tables_[table].cols);
  }
  std::copy(weights.begin(), weights.end(), tables_[table].weights.begin());
  return absl::OkStatus();
}

std::vector<float> CpuEmbeddingOp::OptimizerState(int table) const {
  if (!CheckTable(table).ok()) return {};
  return {tables_[table].state.begin(), tables_[table].state.end()};
}

}  // namespace neuroshard
