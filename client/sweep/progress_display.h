// Shows a sweep's progress on a stream: a bar that is redrawn on a terminal, a line every few
// seconds in a log.
#pragma once

#include <iosfwd>
#include <string>

#include "client/sweep/progress_text.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace neuroshard {

// A bar that is redrawn, or lines.
enum class DisplayMode { kTerminal, kLog };

// Thread-safe. `out` and `clock` must outlive it.
class ProgressDisplay {
 public:
  ProgressDisplay(std::ostream& out, const Clock& clock, DisplayMode mode);

  // Starts the clock of this run and shows the first state.
  void Begin(std::string label, std::int64_t total, std::int64_t done_before);
  // One more record.
  void Add(bool out_of_memory);
  // Call now and then: redraws when enough time has passed.
  void Tick();
  // A message of its own line.
  void Note(const std::string& text);
  // Shows the last state whatever the time, and ends the bar's line.
  void End();

 private:
  void Show(TimePoint now) NS_REQUIRES(mutex_);

  std::ostream& out_;
  const Clock& clock_;
  const DisplayMode mode_;
  Mutex mutex_;
  ProgressState state_ NS_GUARDED_BY(mutex_);
  TimePoint begin_ NS_GUARDED_BY(mutex_);
  TimePoint shown_ NS_GUARDED_BY(mutex_);
  bool running_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
