// A WorkerService over a real socket whose devices do what a test scripted.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "neuroshard/v1/worker.grpc.pb.h"

namespace neuroshard::testing {

// What a FakeWorker does wrong.
struct FakeWorkerScript {
  int num_devices = 1;
  // Dies (every call UNAVAILABLE, streams break) when it is asked for this many samples + 1; -1:
  // never. Back after Revive.
  int dies_after_samples = -1;
  std::set<std::string> out_of_memory = {};  // sample ids
  std::set<std::string> refused = {};        // INVALID_ARGUMENT
  std::set<std::string> hangs = {};          // no answer until the call is cancelled
  std::set<std::string> breaks_always = {};  // INTERNAL
  int busy_streams = 0;  // so many ProfileCompute streams are RESOURCE_EXHAUSTED
  bool aborts_comm_once = false;
  bool knows_all_to_all_only = false;  // as workers of before there were other collectives
  std::vector<std::string> compute_kernels = {};  // none: as workers of before there were others
  std::string collective_backend = "";            // as devices state it
  std::string network_interface = "";             // as records state it
};

// Answers each sample with 1 ms forward and 2 ms backward. Thread-safe.
class FakeWorker final : public v1::WorkerService::Service {
 public:
  explicit FakeWorker(FakeWorkerScript script = {}) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeWorker() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Revive() { dead_ = false; }
  bool dead() const { return dead_; }
  // Times each sample was measured to the end.
  std::map<std::string, int> measured() const {
    const std::lock_guard lock(mutex_);
    return measured_;
  }
  // Whether a sample of `hangs` has been asked for: every sample asked for before it has an answer.
  bool hanging() const { return hanging_; }
  std::set<int> ranks_seen() const {
    const std::lock_guard lock(mutex_);
    return ranks_seen_;
  }
  int open_groups() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(groups_.size());
  }
  int groups_opened() const {
    const std::lock_guard lock(mutex_);
    return groups_opened_;
  }

  grpc::Status GetWorkerInfo(grpc::ServerContext*, const v1::GetWorkerInfoRequest*,
                             v1::WorkerInfo* info) override {
    if (dead_) return Gone();
    info->set_hostname("fake");
    for (int d = 0; d < script_.num_devices; ++d) {
      v1::WorkerDevice* device = info->add_devices();
      device->set_index(d);
      device->set_name("fake");
      device->set_collective_backend(script_.collective_backend);
      for (const std::string& kernel : script_.compute_kernels) device->add_compute_kernels(kernel);
    }
    return grpc::Status::OK;
  }

  grpc::Status ProfileCompute(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ProfileComputeResponse, v1::ProfileComputeRequest>* stream)
      override {
    if (dead_) return Gone();
    v1::ProfileComputeRequest request;
    if (!stream->Read(&request) || !request.has_header()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
    }
    {
      const std::lock_guard lock(mutex_);
      if (script_.busy_streams > 0) {
        --script_.busy_streams;
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "device 0 is held by another job"};
      }
    }
    while (stream->Read(&request)) {
      const std::string& id = request.sample().sample_id();
      v1::ProfileComputeResponse response;
      if (const grpc::Status status = Measure(context, id, *response.mutable_measurement());
          !status.ok()) {
        return status;
      }
      if (!stream->Write(response)) return grpc::Status::CANCELLED;
      const std::lock_guard lock(mutex_);
      ++measured_[id];
    }
    return grpc::Status::OK;
  }

  grpc::Status OpenCommGroup(grpc::ServerContext*, const v1::OpenCommGroupRequest* request,
                             v1::OpenCommGroupResponse* response) override {
    if (dead_) return Gone();
    const std::lock_guard lock(mutex_);
    ++groups_opened_;
    for (const v1::LocalRank& local : request->local_ranks()) {
      groups_[request->group_id()].push_back(local.rank());
      ranks_seen_.insert(local.rank());
      v1::RankAddress* address = response->add_addresses();
      address->set_rank(local.rank());
      address->set_address("rank " + std::to_string(local.rank()));
    }
    response->set_token(TokenOf(*request));
    return grpc::Status::OK;
  }

  grpc::Status ConnectCommGroup(grpc::ServerContext*, const v1::ConnectCommGroupRequest* request,
                                v1::ConnectCommGroupResponse*) override {
    if (dead_) return Gone();
    if (request->token() != TokenOf(*request)) return WrongToken();
    for (const v1::RankAddress& address : request->addresses()) {
      if (address.address() != "rank " + std::to_string(address.rank())) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "mixed up addresses"};
      }
    }
    return grpc::Status::OK;
  }

  // Waits for no peer: what the client does with the answers is what is tested.
  grpc::Status ProfileComm(grpc::ServerContext* context, const v1::ProfileCommRequest* request,
                           v1::ProfileCommResponse* response) override {
    if (request->token() != TokenOf(*request)) return WrongToken();
    std::vector<int> ranks;
    {
      const std::lock_guard lock(mutex_);
      if (script_.aborts_comm_once) {
        script_.aborts_comm_once = false;
        return {grpc::StatusCode::ABORTED, "a peer is gone"};
      }
      const auto group = groups_.find(request->group_id());
      if (group == groups_.end()) return {grpc::StatusCode::ABORTED, "no such group"};
      ranks = group->second;
    }
    for (const int rank : ranks) {
      v1::ComputeMeasurement measurement;
      if (const grpc::Status status = Measure(context, request->sample().sample_id(), measurement);
          !status.ok()) {
        return status;
      }
      v1::CommMeasurement* comm = response->add_measurements();
      comm->set_sample_id(measurement.sample_id());
      comm->set_rank(rank);
      comm->set_outcome(measurement.outcome());
      comm->set_detail(measurement.detail());
      if (measurement.has_forward()) *comm->mutable_series() = measurement.forward();
      auto& properties = *comm->mutable_environment()->mutable_properties();
      if (!script_.network_interface.empty()) {
        properties["network_interface"] = script_.network_interface;
      }
      if (!script_.knows_all_to_all_only && !request->sample().cadence().empty()) {
        properties["cadence"] = request->sample().cadence();
      }
      (*comm->mutable_environment()->mutable_properties())["collective_backend"] = "fake-rings";
      if (!script_.knows_all_to_all_only) {
        (*comm->mutable_environment()->mutable_properties())["collective"] =
            request->sample().collective();
      }
    }
    const std::lock_guard lock(mutex_);
    ++measured_[request->sample().sample_id()];
    return grpc::Status::OK;
  }

  grpc::Status CloseCommGroup(grpc::ServerContext*, const v1::CloseCommGroupRequest* request,
                              v1::CloseCommGroupResponse*) override {
    if (request->token() != TokenOf(*request)) return WrongToken();
    const std::lock_guard lock(mutex_);
    groups_.erase(request->group_id());
    return grpc::Status::OK;
  }

 private:
  template <typename Request>
  std::string TokenOf(const Request& request) const {
    return "of " + request.group_id() + " on " + std::to_string(port_);
  }
  static grpc::Status WrongToken() { return {grpc::StatusCode::PERMISSION_DENIED, "token"}; }
  static grpc::Status Gone() { return {grpc::StatusCode::UNAVAILABLE, "gone"}; }

  grpc::Status Measure(grpc::ServerContext* context, const std::string& id,
                       v1::ComputeMeasurement& measurement) {
    if (dead_) return Gone();
    {
      const std::lock_guard lock(mutex_);
      if (script_.dies_after_samples >= 0 && asked_++ == script_.dies_after_samples) {
        dead_ = true;
        return Gone();
      }
    }
    if (script_.hangs.count(id) > 0) {
      hanging_ = true;
      std::mutex never;
      std::condition_variable nobody;
      std::unique_lock lock(never);
      while (!context->IsCancelled()) nobody.wait_for(lock, std::chrono::milliseconds(5));
      return grpc::Status::CANCELLED;
    }
    if (script_.refused.count(id) > 0) return {grpc::StatusCode::INVALID_ARGUMENT, "refused"};
    if (script_.breaks_always.count(id) > 0) return {grpc::StatusCode::INTERNAL, "broken"};
    measurement.set_sample_id(id);
    measurement.mutable_environment()->set_device("fake");
    measurement.mutable_environment()->set_backend("fake-kernels");
    if (script_.out_of_memory.count(id) > 0) {
      measurement.set_outcome("out_of_memory");
      measurement.set_detail("needs more than there is");
      return grpc::Status::OK;
    }
    measurement.set_outcome("ok");
    Fill(*measurement.mutable_forward(), 1.0);
    Fill(*measurement.mutable_backward(), 2.0);
    return grpc::Status::OK;
  }

  static void Fill(v1::TimedSeries& series, double ms) {
    series.add_samples_ms(ms);
    series.set_median_ms(ms);
    series.set_stop_reason("converged");
  }

  FakeWorkerScript script_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> hanging_{false};
  mutable std::mutex mutex_;
  int asked_ = 0;
  int groups_opened_ = 0;
  std::map<std::string, int> measured_;
  std::map<std::string, std::vector<int>> groups_;
  std::set<int> ranks_seen_;
};

}  // namespace neuroshard::testing
