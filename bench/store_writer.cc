// store_writer STORE NAME SAMPLES: one of the many processes of bench/store_writers.py. Begins a
// sweep of its own, says "ready", and on a line of stdin, "SECONDS", adds a record a sample for so
// long or until all have one. Prints the time of each commit in ms, a line each, "refused N", how
// often it was UNAVAILABLE, and "seconds S".
#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/store/profile_store.h"

namespace neuroshard {
namespace {

using Clock = std::chrono::steady_clock;

ComputeSample Sample(int i) {
  ComputeSample sample;
  sample.sample_id = std::to_string(i);
  for (int k = 0; k < 8; ++k) {
    MeasuredShard shard;
    shard.table = "table_" + std::to_string((i + k) % 50);
    shard.rows = 100'000;
    shard.cols = 64;
    shard.pooling_factor = 20;
    shard.reuse_histogram[0] = 1;
    sample.shards.push_back(shard);
  }
  sample.batch_size = 4096;
  sample.optimizer = Optimizer::kSgd;
  return sample;
}

// As a worker's: 30 timed iterations a stage, and its environment.
ComputeMeasurement Record(const std::string& sample_id, const std::string& host) {
  ComputeMeasurement record;
  record.sample_id = sample_id;
  for (int i = 0; i < 30; ++i) record.forward.samples_ms.push_back(1.0 + i / 3.0);
  record.forward.median_ms = 6;
  record.backward = record.forward;
  record.environment = {
      "0.1.0",          "abcdef",          host,
      "NVIDIA H100",    "neuroshard-cuda", {{"os", "Debian"}, {"driver", "535.1"}},
      1'795'000'000'000};
  return record;
}

Status Write(const std::string& name, const std::string& host, int num_samples) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(name, StoreMode::kReadWrite));
  std::vector<ComputeSample> samples;
  for (int i = 0; i < num_samples; ++i) samples.push_back(Sample(i));
  StatusOr<std::int64_t> sweep = absl::UnavailableError("");
  // Beginning is one large transaction, and all writers begin at once.
  while (absl::IsUnavailable(sweep.status())) {
    sweep = store->BeginSweep<ComputeSample>({host, host, ""}, samples);
  }
  if (!sweep.ok()) return sweep.status();
  std::cout << "ready" << std::endl;
  double seconds = 0;
  std::cin >> seconds;
  const Clock::time_point begin = Clock::now();
  const auto spent_s = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  int refused = 0;
  for (const ComputeSample& sample : samples) {
    const double before_s = spent_s();
    if (before_s > seconds) break;
    const Status added = store->AddComputeMeasurement(*sweep, Record(sample.sample_id, host));
    if (absl::IsUnavailable(added)) {
      ++refused;
      continue;
    }
    if (!added.ok()) return added;
    fmt::print("{:.3f}\n", (spent_s() - before_s) * 1e3);
  }
  fmt::print("refused {}\nseconds {:.3f}\n", refused, spent_s());
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  int num_samples = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &num_samples) || num_samples < 1) {
    std::cerr << "usage: store_writer STORE NAME SAMPLES\n";
    return 2;
  }
  const neuroshard::Status status = neuroshard::Write(argv[1], argv[2], num_samples);
  if (status.ok()) return 0;
  std::cerr << status.ToString() << '\n';
  return 1;
}
