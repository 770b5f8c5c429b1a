// Serves a Prometheus registry, and the process's own metrics, at http://HOST:PORT/metrics, and for
// probes /healthz (the process answers) and /readyz (200 or 503, as SetReady says). For a person / is
// a page of what the process says of itself, and /status.json the same for a program.
//
// Not with prometheus-cpp's Exposer: its web server gives threads 100 KiB of stack, which cannot be
// created in a process whose libraries (OpenBLAS, glog) take nearly as much for thread-local
// storage, and it takes seconds to stop. A scrape needs very little HTTP.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/file_descriptor.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/observe/listen_address.h"
#include "common/observe/logger.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace neuroshard {

// One thread for all connections. A client gets a few seconds and waits for no other; there are 64
// at most, of which a new one ends the oldest, so that silent ones keep no scraper out.
class MetricsExporter {
 public:
  // `address` is HOST:PORT; port 0 lets the system choose. INVALID_ARGUMENT for a malformed
  // address, UNAVAILABLE with the system's reason when it cannot be bound.
  static StatusOr<std::unique_ptr<MetricsExporter>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry);
  // Starts the exporter for a server's main, which logs its address. Null for an empty address. A
  // port that nobody asked for (`stated`) is another one where it is taken, with a warning: several
  // servers share a host.
  static StatusOr<std::unique_ptr<MetricsExporter>> StartForServer(
      const std::string& address, bool stated, std::shared_ptr<prometheus::Registry> registry,
      const Logger& logger);
  ~MetricsExporter();

  MetricsExporter(MetricsExporter&&) = delete;

  // What /readyz says from now on; not ready at first. Any thread.
  void SetReady(bool ready) { ready_.store(ready); }

  // What / and /status.json show from now on: the JSON text of an object, made for each answer on
  // the exporter's thread. Null: nothing; once that returns, the last one is not called any more.
  // Any thread.
  void SetStatus(const std::string& title, std::function<std::string()> json);

  // HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  MetricsExporter(ListeningSocket socket, FileDescriptor wake,
                  std::shared_ptr<prometheus::Registry> registry);
  class Client;
  void Run();
  static int TimeToWaitMs(const std::list<Client>& clients);
  std::string AnswerTo(std::string_view head) const;
  std::string StatusAnswer(bool as_page) const;

  const std::string address_;
  const FileDescriptor listening_;
  const FileDescriptor wake_;  // an eventfd: readable once the thread shall end
  const std::shared_ptr<prometheus::Registry> registry_;
  std::atomic<bool> ready_{false};
  mutable Mutex status_mutex_;
  std::string title_ NS_GUARDED_BY(status_mutex_);
  std::function<std::string()> status_ NS_GUARDED_BY(status_mutex_);
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace neuroshard
