#include "common/rpc/retry_pacer.h"

#include <algorithm>

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

constexpr int kReturnsPerEnd = 4;
// Of the running mean: the share of the newest is one in this many.
constexpr int kEndsInMean = 8;
// Between ends. Shorter, refusals would cost more than they tell; longer is also a server that was
// idle. With kReturnsPerEnd: 50 to 1,000 returns a second.
constexpr milliseconds kLeastBetweenEnds{4};
constexpr milliseconds kMostBetweenEnds{80};

}  // namespace

RetryPacer::RetryPacer(const Clock& clock) : clock_(clock), between_ends_(kMostBetweenEnds) {}

milliseconds RetryPacer::Next() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  const TimePoint earliest = now + kShortest;
  last_return_ = std::max(last_return_ + between_ends_ / kReturnsPerEnd, earliest);
  if (last_return_ > now + kLongest) last_return_ = earliest;
  return std::chrono::round<milliseconds>(last_return_ - now);
}

void RetryPacer::CallEnded() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  const auto between =
      std::clamp<TimePoint::duration>(now - last_end_, kLeastBetweenEnds, kMostBetweenEnds);
  between_ends_ += (between - between_ends_) / kEndsInMean;
  last_end_ = now;
}

}  // namespace neuroshard
