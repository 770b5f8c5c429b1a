// Training progress for people: a bar with ETA on a terminal, a line every few seconds in a log.
#pragma once

#include <cstdio>
#include <string>

#include "common/base/clock.h"
#include "server/pretrain/fit/fit_run.h"

namespace neuroshard {

enum class ProgressStyle { kBar, kLines };

class ConsoleProgress final : public TrainingObserver {
 public:
  // Writes to `out`, which must outlive this.
  ConsoleProgress(std::FILE* out, ProgressStyle style, const Clock* clock)
      : out_(out), style_(style), clock_(clock) {}

  void OnEpoch(const EpochReport& report) override;
  void OnFinished(const EpochReport& last, const std::string& reason) override;
  void OnWarning(const std::string& message) override;

 private:
  void Print(const EpochReport& report);

  std::FILE* out_;
  ProgressStyle style_;
  const Clock* clock_;
  std::string network_;
  TimePoint begin_{};
  TimePoint printed_{};
};

}  // namespace neuroshard
