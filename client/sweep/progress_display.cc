#include "client/sweep/progress_display.h"

#include <ostream>
#include <utility>

namespace neuroshard {
namespace {

constexpr double kRedrawMs = 200;  // a terminal: smooth enough, cheap over ssh
constexpr double kLogEveryMs = 5000;
constexpr int kBarWidth = 20;  // the line fits 80 columns
constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

ProgressDisplay::ProgressDisplay(std::ostream& out, const Clock& clock, DisplayMode mode)
    : out_(out), clock_(clock), mode_(mode) {}

void ProgressDisplay::Begin(std::string label, std::int64_t total, std::int64_t done_before) {
  const MutexLock lock(mutex_);
  begin_ = clock_.Now();
  state_ = {std::move(label), total, done_before, done_before, 0, 0};
  running_ = true;
  Show(begin_);
}

void ProgressDisplay::Add(bool out_of_memory) {
  const MutexLock lock(mutex_);
  ++state_.done;
  if (out_of_memory) ++state_.out_of_memory;
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
  if (bar) out_ << kEraseLine;
  out_ << text << '\n';
  if (bar) Show(clock_.Now());
  out_.flush();
}

void ProgressDisplay::End() {
  const MutexLock lock(mutex_);
  if (!running_) return;
  Show(clock_.Now());
  if (mode_ == DisplayMode::kTerminal) out_ << '\n';
  out_.flush();
  running_ = false;
}

void ProgressDisplay::Show(TimePoint now) {
  state_.elapsed_ms = MillisecondsBetween(begin_, now);
  shown_ = now;
  if (mode_ == DisplayMode::kTerminal) {
    out_ << kEraseLine << ProgressBar(state_, kBarWidth);
  } else {
    out_ << ProgressLine(state_) << '\n';
  }
  out_.flush();
}

}  // namespace neuroshard
