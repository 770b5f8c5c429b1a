// CallThreads: where calls do their work, apart from the threads on which gRPC reports events.
// CallStop: the stop signal of a running RPC.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/stop_signal.h"

namespace neuroshard {

// How calls share the cores.
struct CallTurns {
  int max_running = std::numeric_limits<int>::max();
  // Long beside what passing a turn on costs, short beside a search.
  std::chrono::milliseconds length{20};
  // A call that waits longer than for the turns of those in line before, because they do not give
  // way, goes on regardless.
  std::chrono::milliseconds max_wait{100};
};

// Starts threads as they are needed, no more than told, and keeps them. Thread-safe. The destructor
// runs what is queued and joins. Threads may yield to the rest of the process, gRPC's threads above
// all: they, and threads that they start, are `niceness` steps lower in the priority of Linux's
// scheduler than the process (setpriority(2)), 19 at the most.
//
// No more than `turns.max_running` of the work runs at a time, in turns; the rest waits. So a
// thread of low priority that holds a lock which gRPC's threads want (of malloc, the log, gRPC)
// competes with few of its kind for a core, and lets go of it soon. Work that is new and work that
// had a turn go on alternately.
class CallThreads {
 public:
  explicit CallThreads(int max_threads, int niceness = 0, const CallTurns& turns = {})
      : max_threads_(max_threads), niceness_(niceness), turns_(turns) {}
  ~CallThreads();
  CallThreads(CallThreads&&) = delete;

  // `work` waits for its turn when all threads are busy; admission decides before whether it
  // should.
  void Run(std::function<void()> work);

  // Work calls this often: where others wait and its turn is over, waits for the next one. Nothing
  // happens on other threads than those of a CallThreads. One load while nobody waits.
  static void GiveWay();

  // While it lives, the calling thread's work has no turn: for waits for something else than a
  // core. Nothing happens on other threads.
  class OffTurn {
   public:
    OffTurn();
    ~OffTurn();
    OffTurn(const OffTurn&) = delete;
    OffTurn& operator=(const OffTurn&) = delete;
  };

 private:
  struct Waiting;

  void Loop();
  // Waits in `line` for its turn.
  void TakeTurn(MutexLock& lock, std::deque<Waiting*>& line) NS_REQUIRES(mutex_);
  void ReturnTurn() NS_REQUIRES(mutex_);
  // Whose turn is next; nullptr: nobody waits.
  Waiting* NextWaiting() NS_REQUIRES(mutex_);

  const int max_threads_;
  const int niceness_;
  const CallTurns turns_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_ NS_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ NS_GUARDED_BY(mutex_);
  int idle_ NS_GUARDED_BY(mutex_) = 0;
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  int running_ NS_GUARDED_BY(mutex_) = 0;
  // The work in line for its first turn, and for another.
  std::deque<Waiting*> new_ NS_GUARDED_BY(mutex_);
  std::deque<Waiting*> paused_ NS_GUARDED_BY(mutex_);
  bool new_ones_turn_ NS_GUARDED_BY(mutex_) = true;
  std::atomic<int> waiting_ = 0;  // in both lines
};

// Stops when the caller cancelled, when the call's deadline is so near that the answer just makes
// it, or when the server drains. A cancel is noticed within milliseconds. For use while the handler
// runs; `context`, `draining` and `clock` must outlive it. Thread-safe.
class CallStop final : public StopSignal {
 public:
  // RpcGate::draining() is the usual `draining`. `longest` is the server's own limit, from now on,
  // for callers that set no deadline or a later one; none: no limit.
  CallStop(const grpc::ServerContextBase& context, const StopSignal& draining, const Clock& clock,
           std::optional<std::chrono::milliseconds> longest = std::nullopt);

  // On a thread of CallThreads also gives way to other calls.
  bool ShouldStop() const override;

  // Less than the answer margin is left, or the server's limit has passed.
  bool deadline_reached() const;
  bool cancelled() const { return context_.IsCancelled(); }
  // Time until ShouldStop turns true because of the deadline; none when there is neither deadline
  // nor limit.
  std::optional<TimePoint> stop_at() const { return stop_at_; }

 private:
  bool CancelSeen() const;

  const grpc::ServerContextBase& context_;
  const StopSignal& draining_;
  const Clock& clock_;
  mutable std::atomic<bool> cancel_seen_{false};
  mutable std::atomic<TimePoint::duration> next_check_at_{TimePoint::duration::min()};
  std::optional<TimePoint> stop_at_;
};

}  // namespace neuroshard
