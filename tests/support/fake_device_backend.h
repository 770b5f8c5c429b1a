// A device whose every answer is scripted and whose every call is written down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/device_backend.h"

namespace neuroshard::testing {

// What happened on a fake device, in order, and what it shall answer. Outlives the device, so tests
// can look at it afterwards. Safe for concurrent use.
class FakeDeviceLog {
 public:
  void Add(std::string event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  std::vector<std::string> events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  std::size_t Count(const std::string& event) const {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count(events_.begin(), events_.end(), event));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

struct FakeDeviceScript {
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  bool generates_ids = false;
  Status create_op;          // what CreateEmbeddingOp fails with
  Status health;             // what Health answers
  Status open_communicator;  // what OpenCommunicator fails with
  Status connect;            // what PendingCommunicator::Connect fails with
  Status all_to_all;         // what every Run fails with
  Status reserve;            // what Reserve fails with
  std::vector<std::int64_t>
      free_slots;                 // of caches, after each batch; the last stays. None: no caches
  std::deque<double> times_ms;    // what TimeMs answers, one each; 1 when used up
  std::function<void()> on_time;  // called by every TimeMs
  std::function<void()> on_all_to_all;  // called by every Run
  bool holds_exchanges = false;         // StartNextWhen waits until the exchange
  // Max() answers the larger of its argument and the next of these (what the other ranks say); the
  // argument when used up.
  std::deque<double> peer_values;
};

class FakeEmbeddingOp final : public EmbeddingOp {
 public:
  FakeEmbeddingOp(FakeDeviceLog& log, std::vector<std::int64_t> free_slots)
      : log_(log), free_slots_(std::move(free_slots)) {}
  Status SetInputs(std::vector<LookupBatch> inputs) override {
    log_.Add("set_inputs");
    std::lock_guard lock(mutex_);
    inputs_ = std::move(inputs);
    return absl::OkStatus();
  }
  Status GenerateInputs(const std::vector<LookupPlan>& plans) override {
    log_.Add("generate_inputs " + std::to_string(plans.at(0).rule.draw_seed));
    return absl::OkStatus();
  }
  void Forward() override {
    log_.Add("forward");
    ++batches_;
  }
  CacheCounts Caches() const override {
    if (free_slots_.empty()) return {};
    return {.free_slots = free_slots_[std::min(batches_, free_slots_.size() - 1)]};
  }
  void Backward() override { log_.Add("backward"); }

 private:
  FakeDeviceLog& log_;
  const std::vector<std::int64_t> free_slots_;
  std::size_t batches_ = 0;
  std::mutex mutex_;
  std::vector<LookupBatch> inputs_;
};

// A rank that is alone as far as data goes; what its peers would say is in the script.
class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(CommunicatorSpec spec, FakeDeviceScript& script, FakeDeviceLog& log)
      : spec_(spec), script_(script), log_(log) {}
  ~FakeCommunicator() override { log_.Add("disconnect"); }
  int rank() const override { return spec_.rank; }
  int world_size() const override { return spec_.world_size; }
  Status Reserve(const Exchange& exchange) override {
    const bool all_to_all = exchange.collective == Collective::kAllToAll;
    log_.Add(all_to_all ? "reserve"
                        : "reserve " + std::string(ToText(exchange.collective)) + " " +
                              std::to_string(exchange.block_bytes));
    return script_.reserve;
  }
  Status Run(const Exchange& exchange) override {
    if (wait_) std::exchange(wait_, nullptr)();
    log_.Add(std::string(ToText(exchange.collective)));
    if (script_.on_all_to_all) script_.on_all_to_all();
    return script_.all_to_all;
  }
  void StartNextWhen(std::chrono::nanoseconds, std::function<void()> wait) override {
    if (!script_.holds_exchanges) return wait();
    wait_ = std::move(wait);
  }
  Status Barrier() override {
    log_.Add("barrier");
    return absl::OkStatus();
  }
  StatusOr<double> Max(double value) override {
    if (script_.peer_values.empty()) return value;
    const double peer = script_.peer_values.front();
    script_.peer_values.pop_front();
    return std::max(value, peer);
  }
  void Abort() override { log_.Add("abort"); }

 private:
  const CommunicatorSpec spec_;
  FakeDeviceScript& script_;
  FakeDeviceLog& log_;
  std::function<void()> wait_;
};

class FakePendingCommunicator final : public PendingCommunicator {
 public:
  FakePendingCommunicator(CommunicatorSpec spec, FakeDeviceScript& script, FakeDeviceLog& log)
      : spec_(spec), script_(script), log_(log), address_("rank " + std::to_string(spec.rank)) {}
  const std::string& address() const override { return address_; }
  Status CheckAddress(const std::string& address) const override {
    if (address.starts_with("rank ")) return absl::OkStatus();
    return InvalidArgument("{} is outside of the networks", address);
  }
  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string>) override {
    if (!script_.connect.ok()) return script_.connect;
    return std::make_unique<FakeCommunicator>(spec_, script_, log_);
  }
  void Abort() override { log_.Add("abort"); }

 private:
  const CommunicatorSpec spec_;
  FakeDeviceScript& script_;
  FakeDeviceLog& log_;
  const std::string address_;
};

// `script` and `log` must outlive the device.
class FakeDeviceBackend final : public DeviceBackend {
 public:
  FakeDeviceBackend(FakeDeviceScript& script, FakeDeviceLog& log) : script_(script), log_(log) {
    properties_ = {.name = "fake device",
                   .backend = "fake",
                   .collective_backend = "fake",
                   .memory_bytes = script.memory_bytes,
                   .details = {{"target", "none"}}};
    properties_.generates_ids = script.generates_ids;
    if (!script.free_slots.empty()) {
      properties_.embedding.compute_kernels = {ComputeKernel::kFusedUvmCaching};
    }
  }
  const DeviceProperties& properties() const override { return properties_; }
  StatusOr<std::unique_ptr<EmbeddingOp>> CreateEmbeddingOp(const EmbeddingOpSpec&) override {
    log_.Add("create_op");
    if (!script_.create_op.ok()) return script_.create_op;
    return std::make_unique<FakeEmbeddingOp>(log_, script_.free_slots);
  }
  void FlushCache() override { log_.Add("flush"); }
  Status Health() const override { return script_.health; }
  double TimeMs(const std::function<void()>& work) override {
    log_.Add("time");
    work();
    if (script_.on_time) script_.on_time();
    if (script_.times_ms.empty()) return 1.0;
    const double time_ms = script_.times_ms.front();
    script_.times_ms.pop_front();
    return time_ms;
  }
  StatusOr<std::unique_ptr<PendingCommunicator>> OpenCommunicator(
      const CommunicatorSpec& spec) override {
    log_.Add("open_communicator");
    if (!script_.open_communicator.ok()) return script_.open_communicator;
    return std::make_unique<FakePendingCommunicator>(spec, script_, log_);
  }

 private:
  FakeDeviceScript& script_;
  FakeDeviceLog& log_;
  DeviceProperties properties_;
};

}  // namespace neuroshard::testing
