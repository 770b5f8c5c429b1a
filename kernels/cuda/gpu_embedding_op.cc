#include "kernels/cuda/gpu_embedding_op.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/random.h"

namespace neuroshard::cuda {
namespace {

Status CheckGpuLimits(const EmbeddingOpSpec& spec) {
  for (std::size_t i = 0; i < spec.tables.size(); ++i) {
    if (spec.tables[i].cols > kMaxCols) {
      return InvalidArgument("tables[{}].cols: a gpu has up to {}, got {}", i, kMaxCols,
                             spec.tables[i].cols);
    }
  }
  return absl::OkStatus();
}

// Rows are numbered by 32 bits. Asked of tables that fit the memory, so that one which does not is
// out of memory and not an error.
Status CheckNumberOfRows(const EmbeddingOpSpec& spec) {
  std::int64_t rows = 0;
  for (const EmbeddingTableSpec& table : spec.tables) rows += table.rows;
  if (rows >= std::int64_t{1} << 32) {
    return InvalidArgument("tables: {} rows in all, a gpu has fewer than 2^32", rows);
  }
  return absl::OkStatus();
}

Status CheckFits(std::int64_t bytes, std::int64_t available) {
  if (bytes <= available) return absl::OkStatus();
  return ResourceExhausted("{} do not fit the {} that are available", FormatBytes(bytes),
                           FormatBytes(available));
}

constexpr float kGradientRange = 1e-3F;  // of the gradients that an op begins with

}  // namespace

const EmbeddingAbilities& GpuEmbeddingOp::Abilities() {
  static const EmbeddingAbilities abilities =
      AllAbilities({DataType::kFp32, DataType::kFp16, DataType::kBf16});
  return abilities;
}

StatusOr<std::unique_ptr<GpuEmbeddingOp>> GpuEmbeddingOp::Create(std::shared_ptr<Gpu> gpu,
                                                                 const EmbeddingOpSpec& spec) {
  NS_RETURN_IF_ERROR(CheckSpec(spec, Abilities()));
  NS_RETURN_IF_ERROR(CheckGpuLimits(spec));
  std::unique_ptr<GpuEmbeddingOp> op(new GpuEmbeddingOp(std::move(gpu), spec));
  NS_RETURN_IF_ERROR(Annotate(op->Allocate(), "embedding tables"));
  NS_RETURN_IF_ERROR(op->Initialise());
  return op;
}

GpuEmbeddingOp::GpuEmbeddingOp(std::shared_ptr<Gpu> gpu, const EmbeddingOpSpec& spec)
    : gpu_(std::move(gpu)),
      spec_(spec),
      caches_(gpu_, spec),
      model_(gpu_),
      host_(gpu_, MemoryOf::kHost),
      batch_(gpu_),
      launches_(gpu_) {}

Status GpuEmbeddingOp::Allocate() {
  const Optimizer optimizer = spec_.optimizer;
  MemoryLayout layout, host_layout;
  tables_.resize(spec_.tables.size());
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const EmbeddingTableSpec& table = spec_.tables[t];
    TableData& data = tables_[t];
    const std::int64_t vectors = VectorsOf(table.cols);
    data.spec = table;
    data.type = TypeOf(table.weight_dtype);
    data.vectors = static_cast<std::int32_t>(vectors);
    data.stride = vectors * kVector;
    MemoryLayout& of_rows = IsInHostMemory(table.kernel) ? host_layout : layout;
    const std::int64_t row_bytes = data.stride * 4;
    of_rows.Take(table.rows, &data.weights, data.stride * BytesOf(data.type));
    if (HasRowState(optimizer)) layout.Take(table.rows, &data.state);
    if (HasMoments(optimizer)) of_rows.Take(table.rows, &data.momentum1, row_bytes);
    if (HasSecondMoments(optimizer)) of_rows.Take(table.rows, &data.momentum2, row_bytes);
    if (data.pooled()) device_cols_ += data.stride;  // at most 2^13 a table
  }
  layout.Take(spec_.batch_size, &output_, device_cols_ * 4);
  layout.Take(spec_.batch_size, &output_gradient_, device_cols_ * 4);
  caches_.TakeMemory(layout);
  NS_RETURN_IF_ERROR(CheckFits(layout.bytes(), gpu_->AvailableBytes()));
  NS_RETURN_IF_ERROR(
      Annotate(CheckFits(host_layout.bytes(), gpu_->AvailableHostBytes()), "in host memory"));
  NS_RETURN_IF_ERROR(CheckNumberOfRows(spec_));
  NS_RETURN_IF_ERROR(model_.Reserve(std::max<std::int64_t>(layout.bytes(), 1)));
  NS_RETURN_IF_ERROR(Annotate(host_.Reserve(host_layout.bytes()), "in host memory"));
  layout.PlaceAt(model_.at(0));
  host_layout.PlaceAt(host_.at(0));
  std::int64_t col = 0, key = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableData& data = tables_[t];
    data.first_key = static_cast<std::uint32_t>(key);
    key += data.spec.rows;
    caches_.SetRows(t, data.weights);
    if (!data.pooled()) continue;
    data.output = output_ + col;
    data.gradient = output_gradient_ + col;
    col += data.stride;
    data.stride = device_cols_;
  }
  key_bits_ = std::max(1, static_cast<int>(std::bit_width(
                              static_cast<std::uint64_t>(std::max<std::int64_t>(key, 1) - 1))));
  return absl::OkStatus();
}

Status GpuEmbeddingOp::Initialise() {
  Random seeds(spec_.seed);
  std::vector<FillTable> fills;
  const std::int64_t output_vectors = device_cols_ / kVector, batch = spec_.batch_size;
  for (TableData& table : tables_) {
    const auto cols = static_cast<std::int32_t>(table.spec.cols);
    const std::int32_t vectors = table.vectors;
    const std::uint64_t weights_seed = seeds.Next();
    table.gradient_seed = seeds.Next();
    fills.push_back(
        {table.weights, table.type, table.spec.rows, vectors, cols, vectors, weights_seed, 0.05F});
    if (table.pooled()) {
      fills.push_back(
          {table.output, NumberType::kFp32, batch, vectors, cols, output_vectors, 0, 0});
      fills.push_back({table.gradient, NumberType::kFp32, batch, vectors, cols, output_vectors,
                       table.gradient_seed, kGradientRange});
    }
    if (table.state != nullptr) {
      fills.push_back(
          {table.state, NumberType::kFp32, VectorsOf(table.spec.rows), 1, kVector, 1, 0, 0});
    }
    for (float* moments : {table.momentum1, table.momentum2}) {
      if (moments == nullptr) continue;
      fills.push_back({moments, NumberType::kFp32, table.spec.rows, vectors, cols, vectors, 0, 0});
    }
  }
  for (const FillTable& zeros : caches_.Zeros()) fills.push_back(zeros);
  return Fill(fills);
}

Status GpuEmbeddingOp::Fill(const std::vector<FillTable>& fills) {
  FillLaunch launch;
  LaunchArrays arrays(launches_);
  NS_RETURN_IF_ERROR(arrays.Add(fills, &launch));
  NS_RETURN_IF_ERROR(arrays.Copy(*gpu_));
  gpu_->Launch(launch);
  return gpu_->status();
}

Status GpuEmbeddingOp::SetInputs(std::vector<LookupBatch> inputs) {
  NS_RETURN_IF_ERROR(CheckInputs(spec_, inputs));
  std::vector<BatchShape> shapes;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    shapes.push_back(ShapeOf(inputs[t], tables_[t].pooled()));
  }
  return TakeInputs(shapes, [&](const BatchArrays& batch) { return CopyInputs(inputs, batch); });
}

Status GpuEmbeddingOp::GenerateInputs(const std::vector<LookupPlan>& plans) {
  NS_RETURN_IF_ERROR(CheckPlans(spec_, plans));
  MemoryLayout ids;
  for (const LookupPlan& plan : plans) ids.Take(plan.rule.lookups, plan.weighted ? 12 : 8);
  NS_RETURN_IF_ERROR(CheckRoom(ids.bytes()));  // before bags of ids that cannot be are listed
  std::vector<BatchShape> shapes;
  for (std::size_t t = 0; t < plans.size(); ++t) {
    shapes.push_back(ShapeOf(plans[t], tables_[t].pooled()));
  }
  return TakeInputs(shapes, [&](const BatchArrays& batch) { return LaunchPlans(plans, batch); });
}

Status GpuEmbeddingOp::CheckRoom(std::int64_t bytes) const {
  return Annotate(CheckFits(bytes, gpu_->AvailableBytes() + batch_.bytes()),
                  "ids and the room to sort them");
}

Status GpuEmbeddingOp::TakeInputs(const std::vector<BatchShape>& shapes,
                                  const std::function<Status(const BatchArrays&)>& fill) {
  BatchArrays batch;
  MemoryLayout layout;
  PlaceBatch(spec_, shapes, &batch, &layout);
  if (batch.entries > std::numeric_limits<std::int32_t>::max()) {  // which sorts count in
    return InvalidArgument("inputs: {} ids in all, a gpu has fewer than 2^31", batch.entries);
  }
  if (batch.entries > 0) {
    NS_ASSIGN_OR_RETURN(
        batch.scratch_bytes,
        gpu_->ScratchBytes(
            SortLaunch{.entries = batch.entries, .key_bits = key_bits_, .scaled = batch.scaled}));
  }
  NS_ASSIGN_OR_RETURN(const std::int64_t cache_scratch, caches_.ScratchBytes(batch.cache_entries));
  batch.scratch_bytes = std::max(batch.scratch_bytes, cache_scratch);
  layout.Take(batch.scratch_bytes, &batch.scratch);
  has_inputs_ = false;
  for (TableData& table : tables_) table.num_unpooled = 0;
  NS_RETURN_IF_ERROR(CheckRoom(layout.bytes()));
  NS_RETURN_IF_ERROR(Annotate(batch_.Reserve(std::max<std::int64_t>(layout.bytes(), 1)), "ids"));
  layout.PlaceAt(batch_.at(0));
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableData& table = tables_[t];
    if (table.pooled()) continue;
    table.output = batch.tables[t].output;
    table.gradient = batch.tables[t].gradient;
    table.num_unpooled = shapes[t].ids;
  }
  NS_RETURN_IF_ERROR(fill(batch));
  NS_RETURN_IF_ERROR(FillGradients());
  NS_RETURN_IF_ERROR(CopyLongBags(shapes, batch));
  NS_RETURN_IF_ERROR(PlanLaunches(shapes, batch));
  has_inputs_ = true;
  return absl::OkStatus();
}

template <typename T>
Status GpuEmbeddingOp::CopyIn(const std::vector<T>& values, T* to) {
  if (values.empty()) return absl::OkStatus();
  return gpu_->CopyIn(to, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)));
}

Status GpuEmbeddingOp::CopyInputs(const std::vector<LookupBatch>& inputs,
                                  const BatchArrays& batch) {
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const BatchArrays::Table& place = batch.tables[t];
    NS_RETURN_IF_ERROR(CopyIn(inputs[t].ids, place.ids));
    NS_RETURN_IF_ERROR(CopyIn(inputs[t].offsets, place.offsets));
    NS_RETURN_IF_ERROR(CopyIn(inputs[t].weights, place.weights));
  }
  return absl::OkStatus();
}

Status GpuEmbeddingOp::LaunchPlans(const std::vector<LookupPlan>& plans, const BatchArrays& batch) {
  std::vector<RankRun> runs;
  for (const LookupPlan& plan : plans) runs.insert(runs.end(), plan.runs.begin(), plan.runs.end());
  NS_RETURN_IF_ERROR(CopyIn(runs, batch.runs));
  std::vector<LookupTable> tables;
  for (std::size_t t = 0; t < plans.size(); ++t) {
    const BatchArrays::Table& place = batch.tables[t];
    tables.push_back(
        {plans[t].RuleWith(batch.runs + place.first_run), place.ids, place.offsets, place.weights});
  }
  LookupLaunch launch;
  LaunchArrays arrays(launches_);
  NS_RETURN_IF_ERROR(arrays.Add(tables, &launch));
  NS_RETURN_IF_ERROR(arrays.Copy(*gpu_));
  gpu_->Launch(launch);
  return gpu_->status();
}

Status GpuEmbeddingOp::FillGradients() {
  std::vector<FillTable> fills;
  for (const TableData& table : tables_) {
    if (table.pooled()) continue;
    fills.push_back({table.gradient, NumberType::kFp32, table.num_unpooled, table.vectors,
                     static_cast<std::int32_t>(table.spec.cols), table.vectors, table.gradient_seed,
                     kGradientRange});
  }
  return Fill(fills);
}

Status GpuEmbeddingOp::CopyLongBags(const std::vector<BatchShape>& shapes,
                                    const BatchArrays& batch) {
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const BatchArrays::Table& place = batch.tables[t];
    const LongBags& long_bags = shapes[t].long_bags;
    if (long_bags.bags.empty()) continue;
    NS_RETURN_IF_ERROR(CopyIn(long_bags.begins, place.segment_begins));
    NS_RETURN_IF_ERROR(CopyIn(long_bags.ends, place.segment_ends));
    NS_RETURN_IF_ERROR(CopyIn(long_bags.first_segment, place.first_segments));
    NS_RETURN_IF_ERROR(CopyIn(long_bags.bags, place.long_bags));
  }
  return absl::OkStatus();
}

Status GpuEmbeddingOp::PlanLaunches(const std::vector<BatchShape>& shapes,
                                    const BatchArrays& batch) {
  LaunchArrays arrays(launches_);
  NS_RETURN_IF_ERROR(caches_.Plan(shapes, batch, arrays));
  NS_RETURN_IF_ERROR(PlanForward(shapes, batch, arrays));
  NS_RETURN_IF_ERROR(PlanBackward(shapes, batch, arrays));
  return arrays.Copy(*gpu_);
}

Status GpuEmbeddingOp::PlanForward(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
                                   LaunchArrays& arrays) {
  struct {
    std::vector<PoolTable> pools, segments;
    std::vector<GatherTable> gathers;
  } of[2];  // as rows_
  std::vector<SegmentTable> sums;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const TableData& table = tables_[t];
    const BatchArrays::Table& place = batch.tables[t];
    const LongBags& long_bags = shapes[t].long_bags;
    const bool cached = caches_.of(t) != nullptr;
    const CacheTable cache = cached ? *caches_.of(t) : CacheTable();
    auto& lists = of[cached ? 1 : 0];
    if (!table.pooled()) {
      lists.gathers.push_back({table.weights, table.type, table.vectors, place.ids,
                               table.num_unpooled, table.output, cache.slots, cache.slot_of_row});
      continue;
    }
    const bool mean = table.spec.pooling_mode == PoolingMode::kMean;
    PoolTable pool;
    pool.weights = table.weights;
    pool.type = table.type;
    pool.vectors = table.vectors;
    pool.ids = place.ids;
    pool.id_weights = place.weights;
    pool.begins = place.offsets;
    pool.ends = pool.begins + 1;
    pool.bags = spec_.batch_size;
    pool.longest = kLongestBag;
    pool.bags_per_thread =
        long_bags.bags.empty() ? BagsPerThread(shapes[t].ids, spec_.batch_size) : 1;
    pool.mean = mean;
    pool.output = table.output;
    pool.output_stride = table.stride;
    pool.slots = cache.slots;
    pool.slot_of_row = cache.slot_of_row;
    lists.pools.push_back(pool);
    if (long_bags.bags.empty()) continue;

    float* const partials = place.segment_sums;
    pool.begins = place.segment_begins;
    pool.ends = place.segment_ends;
    pool.bags = static_cast<std::int64_t>(long_bags.begins.size());
    pool.longest = kSegment;
    pool.bags_per_thread = 1;
    pool.mean = false;
    pool.output = partials;
    pool.output_stride = std::int64_t{table.vectors} * kVector;
    lists.segments.push_back(pool);

    const auto bags = static_cast<std::int64_t>(long_bags.bags.size());
    sums.push_back({partials, table.vectors, place.first_segments, place.long_bags, place.offsets,
                    bags, mean, table.output, table.stride});
  }
  for (const bool cached : {false, true}) {
    RowLaunches& rows = rows_[cached ? 1 : 0];
    const auto& lists = of[cached ? 1 : 0];
    rows.gather.cached = rows.pool.cached = rows.pool_segments.cached = cached;
    NS_RETURN_IF_ERROR(arrays.Add(lists.gathers, &rows.gather));
    NS_RETURN_IF_ERROR(arrays.Add(lists.pools, &rows.pool));
    NS_RETURN_IF_ERROR(arrays.Add(lists.segments, &rows.pool_segments));
  }
  return arrays.Add(sums, &add_segments_);
}

Status GpuEmbeddingOp::PlanBackward(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
                                    LaunchArrays& arrays) {
  std::vector<KeyTable> key_tables;
  std::size_t levels = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const BatchArrays::Table& place = batch.tables[t];
    const std::int64_t entries = shapes[t].ids;
    key_tables.push_back({place.ids, tables_[t].pooled() ? place.offsets : nullptr, place.weights,
                          spec_.batch_size, entries, tables_[t].first_key, place.first_entry,
                          tables_[t].spec.pooling_mode == PoolingMode::kMean});
    levels = std::max(levels, place.levels.size());
  }
  NS_RETURN_IF_ERROR(arrays.Add(key_tables, &make_keys_));
  make_keys_.keys = batch.keys;
  make_keys_.occurrences = batch.occurrences;
  make_keys_.scaled = batch.scaled;
  sort_ = {.entries = batch.entries,
           .key_bits = key_bits_,
           .scaled = batch.scaled,
           .keys = make_keys_.keys,
           .occurrences = make_keys_.occurrences,
           .sorted_keys = batch.sorted_keys,
           .sorted_occurrences = batch.sorted_occurrences,
           .scratch = batch.scratch,
           .scratch_bytes = batch.scratch_bytes};

  const std::int64_t occurrence_bytes =
      batch.scaled ? sizeof(ScaledOccurrence) : sizeof(PlainOccurrence);
  const int narrow = NarrowVectors(HasMoments(spec_.optimizer));
  updates_.clear();
  updates_.reserve(4 * levels);  // arrays keeps addresses of its elements
  for (std::size_t level = 0; level < levels; ++level) {
    // Narrow tables have a launch of their own: wide ones need registers that would cost the others
    // their parallelism. So have those with a cache.
    for (const auto& [wide, cached] :
         {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
      std::vector<UpdateTable> updates;
      int vectors_per_lane = 0;
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        const TableData& table = tables_[t];
        const BatchArrays::Table& place = batch.tables[t];
        const CacheTable* const cache = caches_.of(t);
        if (level >= place.levels.size() || (VectorsPerLane(table.vectors) > narrow) != wide ||
            (cache != nullptr) != cached) {
          continue;
        }
        const BatchArrays::Level& here = place.levels[level];
        UpdateTable update;
        update.weights = table.weights;
        update.type = table.type;
        update.vectors = table.vectors;
        update.cols = static_cast<std::int32_t>(table.spec.cols);
        update.state = table.state;
        update.momentum1 = table.momentum1;
        update.momentum2 = table.momentum2;
        update.first_key = table.first_key;
        if (cached) {
          update.slots = cache->slots;
          update.slot_of_row = cache->slot_of_row;
        }
        update.entries = here.entries;
        if (level == 0) {
          update.keys = sort_.sorted_keys + place.first_entry;
          update.gradients = table.gradient;
          update.gradient_stride = table.stride;
          update.occurrences = batch.sorted_occurrences + place.first_entry * occurrence_bytes;
        } else {
          update.keys = here.keys;
          update.filled = here.filled;
          update.gradients = here.partials;
          update.gradient_stride = std::int64_t{table.vectors} * kVector;
        }
        if (level + 1 < place.levels.size()) {
          const BatchArrays::Level& next = place.levels[level + 1];
          update.next_keys = next.keys;
          update.next_filled = next.filled;
          update.next_partials = next.partials;
        }
        updates.push_back(update);
        vectors_per_lane = std::max(vectors_per_lane, VectorsPerLane(table.vectors));
      }
      if (updates.empty()) continue;
      UpdateLaunch& launch = updates_.emplace_back();
      launch.entries = level > 0      ? EntryKind::kPartial
                       : batch.scaled ? EntryKind::kScaled
                                      : EntryKind::kPlain;
      launch.vectors_per_lane = vectors_per_lane;
      launch.cached = cached;
      NS_RETURN_IF_ERROR(arrays.Add(updates, &launch));
    }
  }
  return absl::OkStatus();
}

void GpuEmbeddingOp::Forward() {
  if (!has_inputs_) return;
  caches_.Fetch();
  for (const RowLaunches& rows : rows_) {
    gpu_->Launch(rows.pool);
    gpu_->Launch(rows.gather);
    gpu_->Launch(rows.pool_segments);
  }
  gpu_->Launch(add_segments_);
}

void GpuEmbeddingOp::Backward() {
  if (!has_inputs_ || sort_.entries == 0) return;
  if (!caches_.fetched()) caches_.Fetch();
  gpu_->Launch(make_keys_);
  gpu_->Launch(sort_);
  const UpdateStep step = NextStep();
  for (UpdateLaunch& update : updates_) {
    update.step = step;
    gpu_->Launch(update);
  }
}

CacheCounts GpuEmbeddingOp::Caches() const {
  const StatusOr<CacheCounts> counts = caches_.Counts();
  return counts.ok() ? *counts : CacheCounts();
}

UpdateStep GpuEmbeddingOp::NextStep() {
  const auto t = static_cast<double>(++steps_);
  UpdateStep step;
  step.learning_rate = spec_.learning_rate;
  step.epsilon = spec_.epsilon;
  step.optimizer = spec_.optimizer;
  step.beta1 = spec_.beta1;
  step.beta2 = spec_.beta2;
  const auto inverse_correction = [t](float beta) {
    return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), t)));
  };
  if (step.optimizer != Optimizer::kAdagrad) {
    step.inverse_correction1 = inverse_correction(spec_.beta1);
    step.inverse_correction2 = inverse_correction(spec_.beta2);
  }
  step.eta = spec_.eta;
  step.momentum = spec_.momentum;
  return step;
}

}  // namespace neuroshard::cuda
