// The progress of a sweep as a line of text.
#pragma once

#include <cstdint>
#include <string>

namespace neuroshard {

// Counts of samples and the time so far.
struct ProgressState {
  std::string label;             // "compute", "comm"
  std::int64_t total = 0;        // samples of the sweep
  std::int64_t done = 0;         // with a record, including earlier runs
  std::int64_t done_before = 0;  // with a record when this run began
  std::int64_t out_of_memory = 0;
  double elapsed_ms = 0;  // of this run
};

// "0:07", "12:34", "3:05:09". Rounds up, so that "0:00" means done.
std::string FormatDuration(double ms);

// "compute 150/200 75% 2 out of memory 1.25/s ETA 0:40". The rate and the ETA are of this run; "ETA
// ?" before its first record.
std::string ProgressLine(const ProgressState& state);

// "[######----]" of `width` characters between the brackets in front of the line.
std::string ProgressBar(const ProgressState& state, int width);

}  // namespace neuroshard
