// Stop signal: cancellation as a value that long-running work polls and cannot change.
#pragma once

#include <atomic>

namespace neuroshard {

// A request to stop, as whoever does the work sees it. Thread-safe.
class StopSignal {
 public:
  virtual ~StopSignal() = default;
  // Once true, stays true. Cheap enough for every search step; safe to call from any thread.
  virtual bool ShouldStop() const = 0;
  // Whether a time budget was given and is not used up: work with a default amount then goes on
  // beyond that amount. Once false, stays false.
  virtual bool HasTimeLeft() const { return false; }
};

// The signal of work that nobody stops.
class NeverStop final : public StopSignal {
 public:
  bool ShouldStop() const override { return false; }
};

// A signal that stops when told to, from any thread.
class ManualStop final : public StopSignal {
 public:
  void Stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool ShouldStop() const override { return stopped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
};

// A signal that stops as soon as one of two does. Both must outlive it.
class EitherStop final : public StopSignal {
 public:
  EitherStop(const StopSignal& first, const StopSignal& second) : first_(first), second_(second) {}
  bool ShouldStop() const override { return first_.ShouldStop() || second_.ShouldStop(); }
  bool HasTimeLeft() const override { return first_.HasTimeLeft() || second_.HasTimeLeft(); }

 private:
  const StopSignal& first_;
  const StopSignal& second_;
};

}  // namespace neuroshard
