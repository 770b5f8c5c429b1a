// A profile store that somebody else wrote, or a part of one: the texts in its rows.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "common/store/profile_store.h"
#include "common/store/row_columns.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadStore(const std::string& path) {
  const auto store = ProfileStore::Open(path, StoreMode::kReadOnly);
  if (!store.ok()) return;
  const ProfileStore& opened = **store;
  const auto sweeps = opened.Statistics();
  if (sweeps.ok()) {
    for (const SweepStatistics& sweep : *sweeps) {
      (void)opened.PendingSamples<ComputeSample>(sweep.sweep_id);
      (void)opened.PendingSamples<CommSample>(sweep.sweep_id);
    }
  }
  (void)opened.ReadRecords<ComputeRecord>();
  (void)opened.ReadRecords<CommRecord>();
  (void)opened.CheckIntegrity();
}

void ReadRows(std::string_view input) {
  constexpr std::string_view kDatabase = "SQLite format 3";
  if (input.starts_with(kDatabase)) return ReadStore(FileWith(input));
  const std::string text(input);
  using Integers = std::vector<std::int64_t>;
  using Reals = std::vector<double>;
  if (const auto values = FromRowText<Integers>(text); values.ok()) {
    const auto again = FromRowText<Integers>(ToRowText(*values));
    Promise(again.ok() && *again == *values, "integers come back");
  }
  if (const auto values = FromRowText<Reals>(text); values.ok()) {
    Promise(FromRowText<Reals>(ToRowText(*values)).ok(), "reals come back");
  }
  (void)FromRowText<ReuseHistogram>(text);
  (void)FromRowText<InputDistSample>(text);
  (void)FromRowText<TimedSeries>(text);
  if (const auto environment = FromRowText<MeasurementEnvironment>(text); environment.ok()) {
    const auto again = FromRowText<MeasurementEnvironment>(ToRowText(*environment));
    Promise(again.ok() && ToRowText(*again) == ToRowText(*environment), "environments come back");
  }
}

std::string SmallStore() {
  const std::string path = FileWith("");
  std::filesystem::remove(path);
  {
    auto store = *ProfileStore::Open(path, StoreMode::kReadWrite);
    ComputeSample sample;
    sample.sample_id = "a";
    sample.shards.resize(1);
    sample.shards[0].rows = 10;
    sample.shards[0].cols = 4;
    ComputeRecord record;
    record.sample = sample;
    record.forward_ms = record.backward_ms = std::numeric_limits<double>::quiet_NaN();
    record.total_ms = 1;
    Promise(store->ImportCosts<ComputeRecord>({"n", "h", "t"}, {record}).ok(),
            "the seed is written");
    Promise(store->BeginSweep<ComputeSample>({"n", "g", "t"}, {sample}).ok(),
            "the seed is written");
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // Readers of a file alone would look for its log: this one has none.
  bytes[18] = bytes[19] = 1;
  return bytes;
}

std::vector<std::string> StoreSeeds() {
  return {SmallStore(),
          ToRowText(std::vector<std::int64_t>{1, -2, 1LL << 60}),
          ToRowText(std::vector<double>{0.5, 1e300, -0.0}),
          ToRowText(ReuseHistogram{}),
          ToRowText(MeasurementEnvironment{}),
          ToRowText(TimedSeries{}),
          ToRowText(InputDistSample{{1}, {2}})};
}

}  // namespace

FuzzTarget StoreTarget() { return {"store", ReadRows, StoreSeeds}; }

}  // namespace neuroshard::fuzz
