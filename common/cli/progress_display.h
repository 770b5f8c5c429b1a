// A display of how far something long has come: a bar that is redrawn on a terminal, a line every
// few seconds in a log.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace neuroshard {

// The counts and the time so far that a line or a bar is made of.
struct ProgressState {
  std::string label;             // "compute", "comm"
  std::int64_t total = 0;        // samples of a sweep, at most so many epochs of a training
  std::int64_t done = 0;         // including earlier runs
  std::int64_t done_before = 0;  // when this run began
  std::int64_t out_of_memory = 0;
  double elapsed_ms = 0;    // of this run
  std::string detail = {};  // of what may end before all is done
};

// "0:07", "12:34", "3:05:09". Rounds up, so that "0:00" means done.
std::string FormatDuration(double ms);

// "compute 150/200 75% 2 out of memory 1.25/s ETA 0:40", the detail in front of the rate. Rate and
// ETA are of this run; "ETA ?" before its first record, "ETA at most" with a detail.
std::string ProgressLine(const ProgressState& state);

// "[######----]" of `width` characters between the brackets in front of the line.
std::string ProgressBar(const ProgressState& state, int width);

// A bar that is redrawn, or lines.
enum class DisplayMode { kTerminal, kLog };

// Shows counts, a rate and the time that is left while something long goes on. On a terminal a bar
// is redrawn; messages go above it by Note, since other output would break it. Thread-safe.
class ProgressDisplay {
 public:
  // Writes a text and flushes.
  using Write = std::function<void(std::string_view)>;

  ProgressDisplay(Write write, const Clock& clock, DisplayMode mode)
      : write_(std::move(write)), clock_(clock), mode_(mode) {}
  // `out` and `clock` must outlive it.
  ProgressDisplay(std::ostream& out, const Clock& clock, DisplayMode mode);

  // Starts the clock of this run and shows the first state.
  void Begin(std::string label, std::int64_t total, std::int64_t done_before);
  // One more record.
  void Add(bool out_of_memory);
  // So much is done of what may end early; ticks.
  void Update(std::int64_t done, std::string detail);
  // Call now and then: redraws when enough time has passed.
  void Tick();
  // A message of its own line.
  void Note(const std::string& text);
  // Shows the last state whatever the time, and ends the bar's line.
  void End();

 private:
  void Show(TimePoint now) NS_REQUIRES(mutex_);

  const Write write_;
  const Clock& clock_;
  const DisplayMode mode_;
  Mutex mutex_;
  ProgressState state_ NS_GUARDED_BY(mutex_);
  TimePoint begin_ NS_GUARDED_BY(mutex_);
  TimePoint shown_ NS_GUARDED_BY(mutex_);
  bool running_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
