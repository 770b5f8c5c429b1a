#include "client/stub/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "client/stub/channel.h"
#include "common/rpc/deadline.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// For what the first call waits until it is known which replicas can be used.
constexpr milliseconds kSettle{1'000};
// Channels tell of one change of one state; several are looked at as often as this.
constexpr milliseconds kLook{5};

bool IsBroken(grpc_connectivity_state state) {
  return state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN;
}

bool Connects(grpc_connectivity_state state) {
  return state != GRPC_CHANNEL_READY && !IsBroken(state);
}

}  // namespace

Replicas::Replicas(std::string address, const CallPolicy& policy, const std::string& service)
    : list_(std::move(address)),
      policy_(policy),
      made_(steady_clock::now()),
      next_(std::random_device{}()) {
  const bool is_list = list_.find(',') != std::string::npos;
  for (std::size_t begin = 0; begin <= list_.size();) {
    const std::size_t end = std::min(list_.find(',', begin), list_.size());
    addresses_.push_back(list_.substr(begin, end - begin));
    channels_.push_back(OpenReplicaChannel(addresses_.back(), policy_.tls, is_list ? service : ""));
    begin = end + 1;
  }
  told_.resize(channels_.size());
  were_ready_.resize(channels_.size());
}

std::vector<grpc_connectivity_state> Replicas::States() const {
  std::vector<grpc_connectivity_state> states;
  for (const auto& channel : channels_) states.push_back(channel->GetState(true));
  return states;
}

Replicas::Turn Replicas::Next() {
  if (channels_.size() == 1) return {};
  const steady_clock::time_point give_up = steady_clock::now() + policy_.deadline;
  for (;;) {
    const std::vector<grpc_connectivity_state> states = States();
    const auto connecting = std::find_if(states.begin(), states.end(), Connects);
    const bool any_ready =
        std::find(states.begin(), states.end(), GRPC_CHANNEL_READY) != states.end();
    const auto now = steady_clock::now();
    if (connecting == states.end() || (any_ready && now - made_ >= kSettle) || now >= give_up) {
      const MutexLock lock(mutex_);
      for (std::size_t i = 0; i < states.size(); ++i) {
        if (states[i] == GRPC_CHANNEL_READY) were_ready_[i] = true;
        if (told_[i] || (were_ready_[i] && !IsBroken(states[i]))) continue;
        told_[i] = true;
        if (IsBroken(states[i])) return {i, true};
        Tell(fmt::format("planner at {}: no connection after {} s", addresses_[i],
                         kSettle / std::chrono::seconds(1)));
      }
      const std::size_t first = next_;
      for (std::size_t i = 0; i < states.size(); ++i) {
        const std::size_t replica = (first + i) % states.size();
        if (any_ready && states[replica] != GRPC_CHANNEL_READY) continue;
        next_ = replica + 1;
        return {replica, false};
      }
    }
    channels_[static_cast<std::size_t>(connecting - states.begin())]->WaitForStateChange(
        *connecting, DeadlineIn(kLook));
  }
}

void Replicas::Tell(const std::string& why) const {
  policy_.warn(why + "; calls go to the others of " + list_);
}

}  // namespace neuroshard
