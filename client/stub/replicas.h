// Replicas of one server: which of them takes a call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "common/base/mutex.h"

namespace neuroshard {

// Thread-safe. Of a list, every address has a channel of its own: gRPC checks the certificates of
// all addresses of one channel against one name.
class Replicas {
 public:
  // Whose turn it is.
  struct Turn {
    std::size_t replica = 0;
    // The replica cannot be used, which nobody was told before: a call to it fails at once with
    // the reason.
    bool is_untold = false;
  };

  // `address` is HOST:PORT, or HOST:PORT,HOST:PORT,... of replicas, whose health
  // (grpc.health.v1) of `service` says whether they are ready.
  Replicas(std::string address, const CallPolicy& policy, const std::string& service);

  std::size_t size() const { return channels_.size(); }
  const std::string& address(std::size_t replica) const { return addresses_[replica]; }
  const std::shared_ptr<grpc::Channel>& channel(std::size_t replica) const {
    return channels_[replica];
  }

  // In turn those that are ready. First, once for each, those that are found not to be; the first
  // call waits up to a second until all are known, and those that have not connected by then are
  // told of. Where none is ready, waits up to the policy's deadline for those that connect.
  Turn Next();

  // Tells the policy's `warn` why a replica cannot be used: "planner at HOST:PORT: ...".
  void Tell(const std::string& why) const;

 private:
  std::vector<grpc_connectivity_state> States() const;

  const std::string list_;
  const CallPolicy policy_;
  std::vector<std::string> addresses_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  const std::chrono::steady_clock::time_point made_;
  Mutex mutex_;
  std::size_t next_ NS_GUARDED_BY(mutex_);
  std::vector<bool> told_ NS_GUARDED_BY(mutex_);
  std::vector<bool> were_ready_ NS_GUARDED_BY(mutex_);  // these may connect again without a word
};

}  // namespace neuroshard
