#include "worker/measure/compute_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/violations.h"
#include "kernels/api/statistics.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/lookup_plan.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

EmbeddingOpSpec OpSpec(const ComputeSample& sample) {
  EmbeddingOpSpec spec{.tables = {},
                       .batch_size = sample.batch_size,
                       .optimizer = sample.optimizer,
                       .seed = sample.seed};
  for (const MeasuredShard& shard : sample.shards) {
    spec.tables.push_back({.rows = shard.rows,
                           .cols = shard.cols,
                           .pooling_mode = shard.pooling_mode,
                           .weight_dtype = shard.weight_dtype,
                           .kernel = shard.compute_kernel,
                           .cache_load_factor = shard.cache_load_factor});
  }
  return spec;
}

template <typename E>
void CheckAmong(const std::string& field, E word, const std::vector<E>& words,
                Violations& violations) {
  if (std::ranges::find(words, word) != words.end()) return;
  violations.Add(field, "this device measures {}, got {}", fmt::join(ToTexts(words), ", "),
                 ToText(word));
}

Status CheckSupported(const ComputeSample& sample, const EmbeddingAbilities& device) {
  Violations violations;
  for (std::size_t i = 0; i < sample.shards.size(); ++i) {
    const MeasuredShard& shard = sample.shards[i];
    const std::string path = fmt::format("shards[{}].", i);
    CheckAmong(path + "weight_dtype", shard.weight_dtype, device.weight_dtypes, violations);
    CheckAmong(path + "pooling_mode", shard.pooling_mode, device.pooling_modes, violations);
    CheckAmong(path + "compute_kernel", shard.compute_kernel, device.compute_kernels, violations);
  }
  CheckAmong("optimizer", sample.optimizer, device.optimizers, violations);
  return violations.ToStatus();
}

// Ids of one batch over all shards.
std::int64_t TotalLookups(const ComputeSample& sample) {
  std::int64_t total = 0;  // at most 4096 shards x 2^24 samples x 1e6 ids: below 2^57
  for (const MeasuredShard& shard : sample.shards) {
    total += NumLookups(sample.batch_size, shard.pooling_factor);
  }
  return total;
}

// Bytes that one batch's ids, offsets and weights take.
std::int64_t LookupBytes(const ComputeSample& sample) {
  std::int64_t bytes = 0;
  for (const MeasuredShard& shard : sample.shards) {
    const std::int64_t bytes_per_id = shard.weighted ? 12 : 8;
    bytes += NumLookups(sample.batch_size, shard.pooling_factor) * bytes_per_id +
             (sample.batch_size + 1) * 8;
  }
  return bytes;
}

// Whether rows are looked up through a cache (fused_uvm_caching).
bool HasCaches(const ComputeSample& sample) {
  return std::ranges::any_of(sample.shards, [](const MeasuredShard& shard) {
    return shard.compute_kernel == ComputeKernel::kFusedUvmCaching;
  });
}

// One plan a shard. With a cache the shard's ids are independent ones by one law over all batches
// (PlanIndependentLookups), so that a cache finds rows again as it would in training. Different
// shards and different `batch` numbers get different ids, all determined by sample.seed. A fault of
// shard i is reported as "shards[i]: ...".
StatusOr<std::vector<LookupPlan>> PlanInputs(const ComputeSample& sample, int batch) {
  // A generator that is reseeded per batch keeps batch b the same however many batches are made.
  Random seeds(sample.seed ^ (0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(batch) + 1)));
  Random hot_rows(sample.seed ^ 0x94d049bb133111ebULL);  // the same in all batches
  std::vector<LookupPlan> plans;
  plans.reserve(sample.shards.size());
  for (std::size_t i = 0; i < sample.shards.size(); ++i) {
    const MeasuredShard& shard = sample.shards[i];
    LookupSpec spec = {.rows = shard.rows,
                       .batch_size = sample.batch_size,
                       .pooling_factor = shard.pooling_factor,
                       .weighted = shard.weighted,
                       .seed = seeds.Next()};
    const std::uint64_t hot_rows_seed = hot_rows.Next();
    const bool cached = shard.compute_kernel == ComputeKernel::kFusedUvmCaching;
    if (cached) spec.seed = hot_rows_seed;
    StatusOr<LookupPlan> plan = cached ? PlanIndependentLookups(spec, shard.reuse_histogram, batch)
                                       : PlanLookups(spec, shard.reuse_histogram);
    if (!plan.ok()) return Annotate(plan.status(), fmt::format("shards[{}]", i));
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// The planned ids, made by this thread. Looks at `stop` between shards (CANCELLED).
StatusOr<std::vector<LookupBatch>> ExpandInputs(const std::vector<LookupPlan>& plans,
                                                const StopSignal& stop) {
  std::vector<LookupBatch> inputs;
  inputs.reserve(plans.size());
  for (const LookupPlan& plan : plans) {
    if (stop.ShouldStop()) return absl::CancelledError("stopped while generating ids");
    inputs.push_back(ExpandLookups(plan));
  }
  return inputs;
}

class ComputeLoop {
 public:
  ComputeLoop(DeviceBackend& device, const ComputeSample& sample,
              const MeasurementSettings& settings, const StopSignal& stop)
      : device_(device),
        sample_(sample),
        settings_(settings),
        stop_(stop),
        has_caches_(HasCaches(sample)),
        forward_(settings),
        backward_(settings) {}

  // RESOURCE_EXHAUSTED: out of memory.
  Status Run() {
    if (const std::int64_t bytes = LookupBytes(sample_);
        bytes > device_.properties().memory_bytes) {
      return ResourceExhausted("the ids of one batch take {}, the device has {}",
                               FormatBytes(bytes), FormatBytes(device_.properties().memory_bytes));
    }
    NS_ASSIGN_OR_RETURN(op_, device_.CreateEmbeddingOp(OpSpec(sample_)));
    NS_RETURN_IF_ERROR(PrepareInputs());
    NS_RETURN_IF_ERROR(FillCaches());
    for (int i = 0; i < settings_.warmup_iterations; ++i) {
      NS_RETURN_IF_ERROR(Iterate(i, /*forward=*/nullptr, /*backward=*/nullptr));
    }
    caches_before_ = op_->Caches();
    for (int i = settings_.warmup_iterations; !Finished(); ++i) {
      NS_RETURN_IF_ERROR(Iterate(i, &forward_, &backward_));
      ++iterations_;
    }
    return absl::OkStatus();
  }

  void Fill(ComputeMeasurement& record) const {
    for (const auto& [series, rule] :
         {std::pair(&record.forward, &forward_), std::pair(&record.backward, &backward_)}) {
      *series = Summarize(rule->samples_ms(), rule->reason(), settings_.warmup_iterations);
    }
  }
  std::size_t num_batches() const { return num_batches_; }
  // Distinct rows of a batch that went through caches, and those that they missed.
  void AddCacheProperties(std::map<std::string, std::string>& properties) const {
    if (!has_caches_ || iterations_ == 0) return;
    const CacheCounts counts = op_->Caches();
    const auto a_batch = [this](std::int64_t rows) {
      return fmt::format("{:.1f}", static_cast<double>(rows) / iterations_);
    };
    properties[std::string(kCachedRowsProperty)] =
        a_batch(counts.distinct_rows - caches_before_.distinct_rows);
    properties[std::string(kMissedRowsProperty)] =
        a_batch(counts.missed_rows - caches_before_.missed_rows);
  }

 private:
  Status PrepareInputs() {
    const std::int64_t bytes = LookupBytes(sample_);
    if (has_caches_) {
      if (!device_.properties().generates_ids)
        NS_RETURN_IF_ERROR(CheckHostHolds(2 * bytes, "two batches"));
      return MakeNextBatch();
    }
    const bool rotate = TotalLookups(sample_) < kMaxRotatedLookups && bytes <= kMaxRotatedBytes;
    num_batches_ = rotate ? kRotatedBatches : 1;
    for (std::size_t i = 0; i < num_batches_; ++i) {
      NS_ASSIGN_OR_RETURN(std::vector<LookupPlan> plans, PlanInputs(sample_, static_cast<int>(i)));
      plans_.push_back(std::move(plans));
    }
    if (device_.properties().generates_ids) {
      return rotate ? absl::OkStatus() : op_->GenerateInputs(plans_[0]);
    }
    NS_RETURN_IF_ERROR(CheckHostHolds(bytes, "one batch"));
    for (const std::vector<LookupPlan>& plans : plans_) {
      NS_ASSIGN_OR_RETURN(std::vector<LookupBatch> batch, ExpandInputs(plans, stop_));
      batches_.push_back(std::move(batch));
    }
    if (rotate) return absl::OkStatus();
    Status set = op_->SetInputs(std::move(batches_[0]));  // once, and without a second copy
    batches_.clear();
    return set;
  }

  // The device's limit says nothing about what the host has left: asked when the tables are there.
  static Status CheckHostHolds(std::int64_t bytes, std::string_view of) {
    const std::int64_t available = AvailableMemoryBytes();
    if (bytes <= available) return absl::OkStatus();
    return ResourceExhausted("the ids of {} take {}, the host has {} left", of, FormatBytes(bytes),
                             FormatBytes(available));
  }

  // A cache would hold the rows of batches that come again: every one is new.
  Status MakeNextBatch() {
    NS_ASSIGN_OR_RETURN(std::vector<LookupPlan> plans,
                        PlanInputs(sample_, static_cast<int>(num_batches_++)));
    if (device_.properties().generates_ids) return op_->GenerateInputs(plans);
    NS_ASSIGN_OR_RETURN(std::vector<LookupBatch> batch, ExpandInputs(plans, stop_));
    return op_->SetInputs(std::move(batch));
  }

  // Looks up batches until the caches have no free slot, or lookups do not fill them, or as many
  // batches and ids went through as a measurement can wait for.
  Status FillCaches() {
    if (!has_caches_) return absl::OkStatus();
    const std::int64_t ids = std::max<std::int64_t>(1, TotalLookups(sample_));
    const auto batches = std::min<std::int64_t>(kMaxFillingBatches, kMaxFillingLookups / ids + 1);
    std::int64_t free_slots = op_->Caches().free_slots;
    int idle = 0;
    for (std::int64_t i = 0; i < batches && free_slots > 0 && idle < kIdleFillingBatches; ++i) {
      if (stop_.ShouldStop()) return absl::CancelledError("stopped while caches were filled");
      op_->Forward();
      NS_RETURN_IF_ERROR(MakeNextBatch());
      const std::int64_t left = op_->Caches().free_slots;
      idle = left < free_slots ? 0 : idle + 1;
      free_slots = left;
    }
    return absl::OkStatus();
  }

  // Outside of the timed part. A device that makes ids makes them again.
  Status RotateInputs(int iteration) {
    if (has_caches_) return MakeNextBatch();
    if (num_batches_ == 1) return absl::OkStatus();
    const std::size_t batch = iteration % num_batches_;
    return device_.properties().generates_ids ? op_->GenerateInputs(plans_[batch])
                                              : op_->SetInputs(batches_[batch]);
  }

  Status Iterate(int iteration, StoppingRule* forward, StoppingRule* backward) {
    if (stop_.ShouldStop()) return absl::CancelledError("stopped while measuring");
    NS_RETURN_IF_ERROR(RotateInputs(iteration));
    NS_RETURN_IF_ERROR(Time(forward, [this] { op_->Forward(); }));
    if (stop_.ShouldStop()) return absl::CancelledError("stopped while measuring");
    return Time(backward, [this] { op_->Backward(); });
  }

  Status Time(StoppingRule* series, const std::function<void()>& work) {
    if (settings_.flush_cache) {
      op_->ForgetHostRows();
      device_.FlushCache();
    }
    const double duration_ms = device_.TimeMs(work);
    if (series == nullptr) return absl::OkStatus();
    const Status added = series->AddMeasurementMs(duration_ms);
    // Not a fault of the caller.
    return added.ok() ? added : Internal("the device's timer: {}", Message(added));
  }

  bool Finished() const {
    if (forward_.Finished() && backward_.Finished()) return true;
    return iterations_ >= settings_.min_iterations &&
           forward_.total_ms() + backward_.total_ms() >= static_cast<double>(settings_.max_time_ms);
  }

  DeviceBackend& device_;
  const ComputeSample& sample_;
  const MeasurementSettings& settings_;
  const StopSignal& stop_;
  const bool has_caches_;
  CacheCounts caches_before_;  // the measured iterations
  std::unique_ptr<EmbeddingOp> op_;
  std::vector<std::vector<LookupPlan>> plans_;
  std::vector<std::vector<LookupBatch>>
      batches_;  // kept only when rotated, where the host makes ids
  std::size_t num_batches_ = 0;
  int iterations_ = 0;  // timed
  StoppingRule forward_;
  StoppingRule backward_;
};

}  // namespace

StatusOr<ComputeMeasurement> MeasureCompute(DeviceBackend& device, const ComputeSample& sample,
                                            const MeasurementSettings& settings,
                                            const RecordStamp& stamp, const StopSignal& stop) {
  NS_RETURN_IF_ERROR(CheckSupported(sample, device.properties().embedding));
  ComputeMeasurement record;
  record.sample_id = sample.sample_id;
  std::map<std::string, std::string> properties;
  Status status;
  try {
    ComputeLoop loop(device, sample, settings, stop);
    status = loop.Run();
    if (status.ok()) loop.Fill(record);
    properties = device.Conditions();
    properties[std::string(kDistinctBatchesProperty)] = std::to_string(loop.num_batches());
    loop.AddCacheProperties(properties);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("the host has no memory left for the ids of the batch");
  }
  if (absl::IsResourceExhausted(status)) {
    record.outcome = Outcome::kOutOfMemory;
    record.detail = Message(status);
  } else if (!status.ok()) {
    return status;
  }
  record.environment = stamp.Make(device.properties(), settings, properties);
  return record;
}

}  // namespace neuroshard
