#include "kernels/cpu/cpu_embedding_op.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "kernels/cpu/row_sort.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kBeyondAny = MemoryArena::kBeyondAny;

// Adds the arena block of a x b floats. A sum that is beyond any machine stays there.
void AddBlock(std::int64_t a, std::int64_t b, std::int64_t& bytes) {
  bytes = std::min(kBeyondAny, bytes + MemoryArena::FloatBlockBytes(a, b));
}

// Whether optimizer state of so many values a row is in the arena.
bool IsInArena(const EmbeddingTableSpec& table, std::int64_t values_of_row) {
  return values_of_row > 0 && (values_of_row == 1 || !IsInHostMemory(table.kernel));
}

// Bytes of the arena, of the device's memory beside it, and of the host's.
struct NeededBytes {
  std::int64_t arena = 0;
  std::int64_t beside = 0;
  std::int64_t host = 0;
};

NeededBytes BytesFor(const EmbeddingOpSpec& spec) {
  NeededBytes needed;
  std::int64_t& bytes = needed.arena;
  std::int64_t output_cols = 0;
  for (const EmbeddingTableSpec& table : spec.tables) {
    const OptimizerStateShape state = StateOfRow(spec.optimizer, table.cols);
    if (IsInHostMemory(table.kernel)) {
      needed.beside = std::min(kBeyondAny, needed.beside + HostTable::DeviceBytes(table));
      needed.host = std::min(kBeyondAny, needed.host + HostTable::HostBytes(table, state));
    } else {
      AddBlock(table.rows, table.cols, bytes);
    }
    if (IsInArena(table, state.momentum1)) AddBlock(table.rows, state.momentum1, bytes);
    if (IsInArena(table, state.momentum2)) AddBlock(table.rows, state.momentum2, bytes);
    // Columns that overflow here have made `bytes` too large above.
    if (table.pooling_mode == PoolingMode::kNone) continue;
    output_cols = std::min(output_cols, std::int64_t{1} << 61) + table.cols;
  }
  AddBlock(spec.batch_size, output_cols, bytes);
  AddBlock(spec.batch_size, output_cols, bytes);
  return needed;
}

// RESOURCE_EXHAUSTED, quoting both sizes, unless tables, optimizer state, outputs and gradients fit
// the arena, and with caches and tables in host memory what the machine can still give. Nothing is
// touched.
Status CheckOpFits(const MemoryArena& arena, const EmbeddingOpSpec& spec) {
  const NeededBytes needed = BytesFor(spec);
  NS_RETURN_IF_ERROR(Annotate(arena.CheckFits(needed.arena, needed.beside),
                              needed.host == 0
                                  ? "embedding tables"
                                  : "embedding tables and caches of those in host memory"));
  const std::int64_t available = std::max(
      AvailableMemoryBytes() - needed.beside - arena.NewPagesBytes(needed.arena), std::int64_t{0});
  if (needed.host <= available) return absl::OkStatus();
  return ResourceExhausted(
      "tables in host memory: needs {} ({} bytes), but only {} ({} bytes) are available",
      FormatBytes(needed.host), needed.host, FormatBytes(available), available);
}

// Initial values repeat with this period: a prime, so that rows of any width differ, and short
// enough to stay in the L2 cache while gigabytes are filled at the speed of memory.
constexpr std::int64_t kPeriod = 16381;
constexpr double kGradientLimit = 1e-3;

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

// Slots of a cache and the rows outside of it.
std::int64_t NumPlaces(const EmbeddingTableSpec& table) {
  if (table.kernel != ComputeKernel::kFusedUvmCaching) return table.rows;
  return table.rows + CacheSlots(table.rows, table.cache_load_factor);
}

// Sort keys have 64 bits. Asked of tables that fit the memory, so that one which does not is out of
// memory and not an error.
Status CheckSortKeys(const EmbeddingOpSpec& spec) {
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    if (BitsFor(NumPlaces(spec.tables[i])) + BitsFor(spec.batch_size) > 64) {
      return InvalidArgument("tables[{}].rows: {} times the batch size {} is beyond 2^64", i,
                             spec.tables[i].rows, spec.batch_size);
    }
  }
  return absl::OkStatus();
}

// Bits of a sort key below the row: which gradient the occurrence has, of its sample or, without
// pooling, of its own.
int LowBits(const EmbeddingOpSpec& spec, PoolingMode mode, std::int64_t num_ids) {
  return BitsFor(mode == PoolingMode::kNone ? std::max<std::int64_t>(num_ids, 1) : spec.batch_size);
}

bool HasCache(const HostTable* host) { return host != nullptr && host->num_slots() > 0; }

// 1 - beta^step, in double because beta is near 1.
float Correction(float beta, std::int64_t step) {
  return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(step)));
}

// The backward pass of such a table multiplies each occurrence's gradient by something.
bool HasKeyWeights(PoolingMode mode, const LookupBatch& batch) {
  return mode == PoolingMode::kMean || !batch.weights.empty();
}

}  // namespace

const EmbeddingAbilities& CpuEmbeddingOp::Abilities() {
  static const EmbeddingAbilities abilities = AllAbilities({DataType::kFp32});
  return abilities;
}

StatusOr<std::unique_ptr<CpuEmbeddingOp>> CpuEmbeddingOp::Create(std::shared_ptr<MemoryArena> arena,
                                                                 const EmbeddingOpSpec& spec) {
  NS_RETURN_IF_ERROR(CheckSpec(spec, Abilities()));
  arena->Reset();
  NS_RETURN_IF_ERROR(CheckOpFits(*arena, spec));
  NS_RETURN_IF_ERROR(CheckSortKeys(spec));
  std::unique_ptr<CpuEmbeddingOp> op(new CpuEmbeddingOp(std::move(arena), spec));
  NS_RETURN_IF_ERROR(op->MakeTables());
  return op;
}

Status CpuEmbeddingOp::MakeTables() {
  Random seeds(spec_.seed);
  for (const EmbeddingTableSpec& table : spec_.tables) {
    NS_RETURN_IF_ERROR(MakeTable(table, seeds.Next()));
  }
  output_ = TakeFloats(spec_.batch_size * output_cols_);
  std::ranges::fill(output_, 0.0F);
  output_gradient_ = TakeFloats(spec_.batch_size * output_cols_);
  FillRandom(output_gradient_, seeds.Next(), kGradientLimit);
  vectors_seed_ = seeds.Next();
  fixed_bytes_ = arena_->used_bytes();
  return absl::OkStatus();
}

Status CpuEmbeddingOp::MakeTable(const EmbeddingTableSpec& table, std::uint64_t seed) {
  TableData data = {.rows = table.rows,
                    .cols = table.cols,
                    .first_output_col = output_cols_,
                    .pooling_mode = table.pooling_mode};
  const OptimizerStateShape state = StateOfRow(spec_.optimizer, table.cols);
  if (IsInHostMemory(table.kernel)) {
    NS_ASSIGN_OR_RETURN(data.host, HostTable::Create(table, state));
    data.momentum1 = data.host->momentum1();
    data.momentum2 = data.host->momentum2();
    beside_bytes_ += HostTable::DeviceBytes(table);
  } else {
    data.weights = TakeFloats(table.rows * table.cols);
  }
  FillRandom(data.host ? data.host->table_weights() : data.weights, seed, 0.05);
  for (const auto& [values, of_row] :
       {std::pair(&data.momentum1, state.momentum1), std::pair(&data.momentum2, state.momentum2)}) {
    if (!IsInArena(table, of_row)) continue;
    *values = TakeFloats(table.rows * of_row);
    std::fill(values->begin(), values->end(), 0.0F);
  }
  if (table.pooling_mode != PoolingMode::kNone) output_cols_ += table.cols;
  tables_.push_back(std::move(data));
  return absl::OkStatus();
}

std::span<float> CpuEmbeddingOp::TakeFloats(std::int64_t count) {
  return {reinterpret_cast<float*>(arena_->Take(count * 4)), static_cast<std::size_t>(count)};
}

// What the vectors had before stays where the numbers of ids are the same, as they are when
// measured inputs alternate.
Status CpuEmbeddingOp::TakeVectors(const std::vector<LookupBatch>& inputs,
                                   std::int64_t beside_bytes) {
  std::int64_t bytes = 0;
  bool same = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (tables_[i].pooling_mode != PoolingMode::kNone) continue;
    const auto ids = static_cast<std::int64_t>(inputs[i].ids.size());
    if (BitsFor(NumPlaces(spec_.tables[i])) + LowBits(spec_, PoolingMode::kNone, ids) > 64) {
      return InvalidArgument("inputs[{}]: {} ids times {} rows are beyond 2^64", i, ids,
                             tables_[i].rows);
    }
    AddBlock(ids, tables_[i].cols, bytes);
    AddBlock(ids, tables_[i].cols, bytes);
    same = same && ids * tables_[i].cols == static_cast<std::int64_t>(tables_[i].vectors.size());
  }
  if (same) return Annotate(arena_->CheckFits(0, beside_bytes), "sorting the ids");
  const std::int64_t used_bytes = arena_->used_bytes();
  arena_->ResetTo(fixed_bytes_);
  const Status fits = Annotate(arena_->CheckFits(bytes, beside_bytes),
                               "vectors of tables without pooling, and sorting the ids");
  if (!fits.ok()) {
    arena_->ResetTo(used_bytes);
    return fits;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TableData& table = tables_[i];
    if (table.pooling_mode != PoolingMode::kNone) continue;
    const auto values = static_cast<std::int64_t>(inputs[i].ids.size()) * table.cols;
    table.vectors = TakeFloats(values);
    std::ranges::fill(table.vectors, 0.0F);
    table.vector_gradients = TakeFloats(values);
    FillRandom(table.vector_gradients, vectors_seed_ + i, kGradientLimit);
  }
  return absl::OkStatus();
}

Status CpuEmbeddingOp::SetInputs(std::vector<LookupBatch> inputs) {
  NS_RETURN_IF_ERROR(CheckInputs(spec_, inputs));
  std::size_t keys = 0, key_weights = 0;
  std::int64_t scratch = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    keys = std::max(keys, inputs[i].ids.size());
    if (HasKeyWeights(tables_[i].pooling_mode, inputs[i])) {
      key_weights = std::max(key_weights, inputs[i].ids.size());
    }
    scratch = std::max(scratch, UpdateScratchFloats(spec_.optimizer,
                                                    static_cast<std::int64_t>(inputs[i].ids.size()),
                                                    tables_[i].cols));
  }
  std::int64_t places = 0;  // bytes
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (HasCache(tables_[i].host.get())) places += 8 * std::ssize(inputs[i].ids);
  }
  NS_RETURN_IF_ERROR(TakeVectors(inputs, static_cast<std::int64_t>(keys * 16 + key_weights * 8) +
                                             scratch * 4 + places + beside_bytes_));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (HasCache(tables_[i].host.get())) tables_[i].host->NewInputs(inputs[i].ids.size());
  }
  keys_.resize(keys);
  spare_keys_.resize(keys);
  key_weights_.resize(key_weights);
  spare_key_weights_.resize(key_weights);
  scratch_.resize(static_cast<std::size_t>(scratch));
  inputs_ = std::move(inputs);
  return absl::OkStatus();
}

RowList CpuEmbeddingOp::RowsOf(const TableData& table, const LookupBatch& batch) {
  RowList list;
  list.rows = table.host ? table.host->rows() : table.weights.data();
  list.stride = table.cols;
  list.keys = HasCache(table.host.get())
                  ? table.host->places().data()
                  : reinterpret_cast<const std::uint64_t*>(batch.ids.data());  // not negative
  list.key_weights = batch.weights.empty() ? nullptr : batch.weights.data();
  list.num_keys = static_cast<std::int64_t>(batch.ids.size());
  return list;
}

void CpuEmbeddingOp::Forward() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TableData& table = tables_[i];
    const LookupBatch& batch = inputs_[i];
    if (HasCache(table.host.get())) table.host->Fetch(batch.ids, keys_, spare_keys_);
    const bool pooled = table.pooling_mode != PoolingMode::kNone;
    PoolArguments pool;
    pool.list = RowsOf(table, batch);
    pool.cols = table.cols;
    pool.offsets = pooled ? batch.offsets.data() : nullptr;
    pool.batch_size = spec_.batch_size;
    pool.mean = table.pooling_mode == PoolingMode::kMean;
    pool.output = pooled ? output_.data() + table.first_output_col : table.vectors.data();
    pool.output_stride = pooled ? output_cols_ : table.cols;
    PoolRows(pool);
  }
}

void CpuEmbeddingOp::Backward() {
  ++step_;
  for (std::size_t i = 0; i < inputs_.size(); ++i) BackwardTable(tables_[i], inputs_[i]);
}

// Makes the sort keys of a table's ids and, where they have some, the keys' weights.
void CpuEmbeddingOp::MakeKeys(const TableData& table, const LookupBatch& batch,
                              std::span<const std::uint64_t> rows, int low_bits) {
  if (table.pooling_mode == PoolingMode::kNone) {
    for (std::size_t i = 0; i < rows.size(); ++i) keys_[i] = rows[i] << low_bits | i;
    return;
  }
  const bool mean = table.pooling_mode == PoolingMode::kMean;
  const bool weighted = HasKeyWeights(table.pooling_mode, batch);
  for (std::int64_t sample = 0; sample < spec_.batch_size; ++sample) {
    const std::int64_t begin = batch.offsets[sample], end = batch.offsets[sample + 1];
    const float scale =
        mean ? 1.0F / static_cast<float>(std::max<std::int64_t>(1, end - begin)) : 1.0F;
    for (std::int64_t i = begin; i < end; ++i) {
      keys_[i] = rows[i] << low_bits | static_cast<std::uint64_t>(sample);
      if (weighted) key_weights_[i] = batch.weights.empty() ? scale : scale * batch.weights[i];
    }
  }
}

void CpuEmbeddingOp::BackwardTable(const TableData& table, const LookupBatch& batch) {
  const bool pooled = table.pooling_mode != PoolingMode::kNone;
  const bool weighted = HasKeyWeights(table.pooling_mode, batch);
  const std::size_t num_keys = batch.ids.size(), num_weights = weighted ? num_keys : 0;
  const int low_bits = LowBits(spec_, table.pooling_mode, static_cast<std::int64_t>(num_keys));
  if (HasCache(table.host.get()) && !table.host->fetched()) {
    table.host->Fetch(batch.ids, keys_, spare_keys_);
  }
  const RowList looked_up = RowsOf(table, batch);
  const std::int64_t num_slots = table.host ? table.host->num_slots() : 0;
  MakeKeys(table, batch, {looked_up.keys, num_keys}, low_bits);
  const SortedRows sorted = SortByRow(
      {std::span(keys_).first(num_keys), std::span(key_weights_).first(num_weights)},
      {std::span(spare_keys_).first(num_keys), std::span(spare_key_weights_).first(num_weights)},
      low_bits, low_bits + BitsFor(table.rows + num_slots));
  UpdateArguments update;
  update.gradients.rows =
      pooled ? output_gradient_.data() + table.first_output_col : table.vector_gradients.data();
  update.gradients.stride = pooled ? output_cols_ : table.cols;
  update.gradients.keys = sorted.keys.data();
  update.gradients.key_mask = (std::uint64_t{1} << low_bits) - 1;
  update.gradients.key_weights = weighted ? sorted.payload.data() : nullptr;
  update.gradients.num_keys = static_cast<std::int64_t>(num_keys);
  update.row_shift = low_bits;
  update.cols = table.cols;
  update.weights = table.host ? table.host->rows() : table.weights.data();
  update.slot_rows = table.host ? table.host->slot_rows() : nullptr;
  update.num_slots = num_slots;
  update.optimizer = spec_.optimizer;
  update.momentum1 = table.momentum1.data();
  update.momentum2 = table.momentum2.data();
  update.learning_rate = spec_.learning_rate;
  update.epsilon = spec_.epsilon;
  update.beta1 = spec_.beta1;
  update.beta2 = spec_.beta2;
  update.correction1 = Correction(spec_.beta1, step_);
  update.correction2 = Correction(spec_.beta2, step_);
  update.eta = spec_.eta;
  update.momentum = spec_.momentum;
  update.scratch = scratch_.data();
  UpdateRows(update);
}

CacheCounts CpuEmbeddingOp::Caches() const {
  CacheCounts sum;
  for (const TableData& table : tables_) {
    if (!table.host) continue;
    const CacheCounts of_table = table.host->counts();
    sum.distinct_rows += of_table.distinct_rows;
    sum.missed_rows += of_table.missed_rows;
    sum.free_slots += of_table.free_slots;
  }
  return sum;
}

void CpuEmbeddingOp::ForgetHostRows() {
  for (const TableData& table : tables_) {
    if (table.host) table.host->Forget();
  }
}

}  // namespace neuroshard
