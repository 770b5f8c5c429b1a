// Keeps a model repository up to date while a planner runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>

#include "common/base/mutex.h"
#include "common/observe/logger.h"
#include "server/models/model_repository.h"
#include "server/service/planner_metrics.h"

namespace neuroshard {

// Reloads from its own thread: every `interval` (0: never by itself), and when ReloadNow is called.
// What a reload changed is logged and counted, once. Everything given outlives the watcher.
class ModelWatcher {
 public:
  ModelWatcher(ModelRepository& repository, std::chrono::milliseconds interval,
               const Logger& logger, PlannerMetrics& metrics);
  ~ModelWatcher();

  ModelWatcher(ModelWatcher&&) = delete;

  // Returns at once; any thread.
  void ReloadNow();
  // `tell` is called with whether requests that name no model have one: now, on this thread, and
  // when that changes, on the watcher's. It must not call the watcher. Null: nobody is told any
  // more, once this returns.
  void OnDefaultModel(std::function<void(bool)> tell);

 private:
  void Run();
  void TellDefaultModel() NS_REQUIRES(mutex_);
  // Logs the model of requests that name none when it becomes another, and whether it is poor.
  void NoteDefaultModel() NS_REQUIRES(mutex_);

  ModelRepository& repository_;
  const std::chrono::milliseconds interval_;
  const Logger& logger_;
  PlannerMetrics& metrics_;
  Mutex mutex_;
  std::condition_variable wake_;
  bool reload_ NS_GUARDED_BY(mutex_) = false;
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  std::function<void(bool)> tell_ NS_GUARDED_BY(mutex_);
  std::optional<bool> told_ NS_GUARDED_BY(mutex_);
  std::string noted_ NS_GUARDED_BY(mutex_);  // NAME/VERSION
  std::thread thread_;                       // last: starts when everything else is there
};

}  // namespace neuroshard
