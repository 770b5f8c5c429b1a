#include "common/cli/progress_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

namespace neuroshard {
namespace {

constexpr double kRedrawMs = 200;  // a terminal: smooth enough, cheap over ssh
constexpr double kLogEveryMs = 5000;
constexpr int kBarWidth = 20;  // the line fits 80 columns
constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

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
  if (!state.detail.empty()) line += ' ' + state.detail;
  const std::int64_t done_now = state.done - state.done_before;
  if (state.done >= state.total)
    return line + fmt::format(" done in {}", FormatDuration(state.elapsed_ms));
  if (done_now <= 0 || state.elapsed_ms <= 0) return line + " ETA ?";
  const double ms_per_sample = state.elapsed_ms / static_cast<double>(done_now);
  return line +
         fmt::format(" {:.2f}/s ETA{} {}", 1000 / ms_per_sample,
                     state.detail.empty() ? "" : " at most",
                     FormatDuration(ms_per_sample * static_cast<double>(state.total - state.done)));
}

std::string ProgressBar(const ProgressState& state, int width) {
  const std::int64_t filled =
      state.total > 0 ? std::min(state.done, state.total) * width / state.total : width;
  return fmt::format("[{}{}] {}", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(width - filled), '-'),
                     ProgressLine(state));
}

ProgressDisplay::ProgressDisplay(std::ostream& out, const Clock& clock, DisplayMode mode)
    : ProgressDisplay([&out](std::string_view text) { out << text << std::flush; }, clock, mode) {}

void ProgressDisplay::Begin(std::string label, std::int64_t total, std::int64_t done_before) {
  const MutexLock lock(mutex_);
  begin_ = clock_.Now();
  state_ = {std::move(label), total, done_before, done_before};
  running_ = true;
  Show(begin_);
}

void ProgressDisplay::Add(bool out_of_memory) {
  const MutexLock lock(mutex_);
  ++state_.done;
  if (out_of_memory) ++state_.out_of_memory;
}

void ProgressDisplay::Update(std::int64_t done, std::string detail) {
  {
    const MutexLock lock(mutex_);
    state_.done = done;
    state_.detail = std::move(detail);
  }
  Tick();
}

void ProgressDisplay::Tick() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  const double every_ms = mode_ == DisplayMode::kTerminal ? kRedrawMs : kLogEveryMs;
  if (running_ && MillisecondsBetween(shown_, now) >= every_ms) Show(now);
}

void ProgressDisplay::Note(const std::string& text) {
  const MutexLock lock(mutex_);
  const bool bar = running_ && mode_ == DisplayMode::kTerminal;
  write_(fmt::format("{}{}\n", bar ? kEraseLine : "", text));
  if (bar) Show(clock_.Now());
}

void ProgressDisplay::End() {
  const MutexLock lock(mutex_);
  if (!running_) return;
  Show(clock_.Now());
  if (mode_ == DisplayMode::kTerminal) write_("\n");
  running_ = false;
}

void ProgressDisplay::Show(TimePoint now) {
  state_.elapsed_ms = MillisecondsBetween(begin_, now);
  shown_ = now;
  write_(mode_ == DisplayMode::kTerminal ? kEraseLine + ProgressBar(state_, kBarWidth)
                                         : ProgressLine(state_) + '\n');
}

}  // namespace neuroshard
