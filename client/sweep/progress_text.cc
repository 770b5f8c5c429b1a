#include "client/sweep/progress_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace neuroshard {

std::string FormatDuration(double ms) {
  const auto seconds = static_cast<std::int64_t>(std::ceil(std::max(ms, 0.0) / 1000));
  if (seconds >= 3600)
    return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
}

std::string ProgressLine(const ProgressState& state) {
  const double share =
      state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 1.0;
  // Rounded down: 100% is said only when it is.
  std::string line = fmt::format("{} {}/{} {}%", state.label, state.done, state.total,
                                 static_cast<std::int64_t>(share * 100));
  if (state.out_of_memory > 0) line += fmt::format(" {} out of memory", state.out_of_memory);
  const std::int64_t done_now = state.done - state.done_before;
  if (state.done >= state.total)
    return line + fmt::format(" done in {}", FormatDuration(state.elapsed_ms));
  if (done_now <= 0 || state.elapsed_ms <= 0) return line + " ETA ?";
  const double ms_per_sample = state.elapsed_ms / static_cast<double>(done_now);
  return line +
         fmt::format(" {:.2f}/s ETA {}", 1000 / ms_per_sample,
                     FormatDuration(ms_per_sample * static_cast<double>(state.total - state.done)));
}

std::string ProgressBar(const ProgressState& state, int width) {
  const std::int64_t filled =
      state.total > 0 ? std::min(state.done, state.total) * width / state.total : width;
  return fmt::format("[{}{}] {}", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(width - filled), '-'),
                     ProgressLine(state));
}

}  // namespace neuroshard
