#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/pretrain/data/cast_records.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/train/cast_fit.h"
#include "server/pretrain/train/universal_training.h"

namespace neuroshard {
namespace {

std::vector<CommRecord> OfType(const std::vector<CommRecord>& records, DataType dtype) {
  std::vector<CommRecord> of_type;
  for (const CommRecord& record : records) {
    if (record.sample.wire_dtype == dtype) of_type.push_back(record);
  }
  return of_type;
}

// Of every rank of these records.
std::vector<CastObservation> Observations(const std::vector<CommRecord>& records,
                                          const std::vector<std::int64_t>& at) {
  std::vector<CastObservation> observations;
  for (const std::int64_t i : at) {
    const CommRecord& record = records[static_cast<std::size_t>(i)];
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const double values = CastValues(record.sample, rank);
      if (values > 0) observations.push_back({values, record.cost_ms[rank]});
    }
  }
  return observations;
}

}  // namespace

void TrainCasts(const std::vector<CommRecord>& records, const TrainingConfig& config,
                TrainingOutcome& outcome) {
  MeasuredCasts& casts = outcome.manifest.casts;
  for (const auto& [dtype, rates] :
       {std::pair(DataType::kFp16, &casts.fp16), std::pair(DataType::kBf16, &casts.bf16)}) {
    const std::vector<CommRecord> of_type = OfType(records, dtype);
    if (std::ssize(of_type) < config.min_samples) continue;
    SampleSplit split = SplitComm(of_type, config.optimization.seed);
    // There is nothing to choose between: validation samples are learned from, too.
    split.train.insert(split.train.end(), split.validation.begin(), split.validation.end());
    const std::vector<CastObservation> learned = Observations(of_type, split.train);
    if (learned.empty()) continue;
    *rates = FitCasts(learned);
    NetworkReport report;
    report.name = fmt::format("casts {}", ToText(dtype));
    report.key = fmt::format("casts.{}", ToText(dtype));
    report.train_samples = std::ssize(split.train);
    for (const CastObservation& one : Observations(of_type, split.test)) {
      report.predicted_ms.push_back((*rates)->Ms(one.values));
      report.measured_ms.push_back(one.ms);
    }
    report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
    outcome.reports.push_back(std::move(report));
  }
}

}  // namespace neuroshard
