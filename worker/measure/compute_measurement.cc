#include "worker/measure/compute_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/violations.h"
#include "kernels/api/statistics.h"
#include "kernels/machine/machine.h"
#include "worker/measure/lookup_inputs.h"

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
std::string Listed(const std::vector<E>& words) {
  std::vector<std::string_view> texts;
  for (const E word : words) texts.push_back(ToText(word));
  return fmt::format("{}", fmt::join(texts, ", "));
}

template <typename E>
void CheckAmong(const std::string& field, E word, const std::vector<E>& words,
                Violations& violations) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  violations.Add(field,
                 fmt::format("this device measures {}, got {}", Listed(words), ToText(word)));
}

Status CheckSupported(const ComputeSample& sample, const EmbeddingAbilities& device) {
  Violations violations;
  for (std::size_t i = 0; i < sample.shards.size(); ++i) {
    const MeasuredShard& shard = sample.shards[i];
    const std::string path = fmt::format("shards[{}].", i);
    CheckAmong(path + "weight_dtype", shard.weight_dtype, device.weight_types, violations);
    CheckAmong(path + "pooling_mode", shard.pooling_mode, device.pooling_modes, violations);
    CheckAmong(path + "compute_kernel", shard.compute_kernel, device.compute_kernels, violations);
  }
  CheckAmong("optimizer", sample.optimizer, device.optimizers, violations);
  return violations.ToStatus();
}

// A stopping rule that remembers why it first was satisfied: the series goes on while its partner
// needs more iterations.
class Series {
 public:
  explicit Series(const MeasurementSettings& settings) : rule_(settings) {}

  Status Add(double duration_ms) {
    if (const Status added = rule_.AddMeasurementMs(duration_ms); !added.ok()) {
      return Internal("the device's timer: {}", Message(added));  // not a fault of the caller
    }
    total_ms_ += duration_ms;
    if (!finished_ && rule_.Finished()) {
      finished_ = true;
      reason_ = rule_.reason();
    }
    return absl::OkStatus();
  }
  bool finished() const { return finished_; }
  double total_ms() const { return total_ms_; }
  TimedSeries Record(int warmup_iterations) const {
    return Summarize(rule_.samples_ms(), reason_, warmup_iterations);
  }

 private:
  StoppingRule rule_;
  double total_ms_ = 0;
  bool finished_ = false;
  StopReason reason_ = StopReason::kMaxTime;
};

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
    record.forward = forward_.Record(settings_.warmup_iterations);
    record.backward = backward_.Record(settings_.warmup_iterations);
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

  Status Iterate(int iteration, Series* forward, Series* backward) {
    if (stop_.ShouldStop()) return absl::CancelledError("stopped while measuring");
    NS_RETURN_IF_ERROR(RotateInputs(iteration));
    NS_RETURN_IF_ERROR(Time(forward, [this] { op_->Forward(); }));
    if (stop_.ShouldStop()) return absl::CancelledError("stopped while measuring");
    return Time(backward, [this] { op_->Backward(); });
  }

  Status Time(Series* series, const std::function<void()>& work) {
    if (settings_.flush_cache) {
      op_->ForgetHostRows();
      device_.FlushCache();
    }
    const double duration_ms = device_.TimeMs(work);
    return series == nullptr ? absl::OkStatus() : series->Add(duration_ms);
  }

  bool Finished() const {
    if (forward_.finished() && backward_.finished()) return true;
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
  Series forward_;
  Series backward_;
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
