// Mutex that clang's thread-safety analysis understands, and the annotations for what it guards.
//
//   Mutex mutex_;
//   std::condition_variable changed_;
//   bool stopping_ NS_GUARDED_BY(mutex_) = false;
//
//   MutexLock lock(mutex_);
//   while (!stopping_) lock.Wait(changed_);
//
// tests/check_locks.sh compiles with -Wthread-safety: an access to guarded data without its mutex
// is an error there. Other compilers see no annotations. absl::Mutex has them too, but
// ThreadSanitizer reports its uninstrumented build in Debian.
// The analysis looks at one function at a time: a lambda (a wait's predicate, say) holds nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define NS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define NS_THREAD_ANNOTATION(x)
#endif

// Marks data that is read and written with the mutex held alone.
#define NS_GUARDED_BY(mutex) NS_THREAD_ANNOTATION(guarded_by(mutex))
// Marks a function that is called with the mutex held, or without it.
#define NS_REQUIRES(mutex) NS_THREAD_ANNOTATION(requires_capability(mutex))
#define NS_EXCLUDES(mutex) NS_THREAD_ANNOTATION(locks_excluded(mutex))

namespace neuroshard {

// A std::mutex. Locked by MutexLock alone.
class NS_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(Mutex&&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex while it lives, but for times between Unlock and Lock. For one thread.
class NS_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) NS_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() NS_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(MutexLock&&) = delete;

  void Unlock() NS_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }
  void Lock() NS_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }

  // Gives the mutex up while it waits; may return without a notification, so call it in a loop.
  void Wait(std::condition_variable& changed) { changed.wait(lock_); }
  // False once `deadline` has passed.
  bool WaitUntil(std::condition_variable& changed, std::chrono::steady_clock::time_point deadline) {
    return changed.wait_until(lock_, deadline) == std::cv_status::no_timeout;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace neuroshard
