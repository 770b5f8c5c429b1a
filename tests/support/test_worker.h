// A whole worker in this process, behind a real socket on a port that the system chose. For tests.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <prometheus/registry.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/rpc/rpc_server.h"
#include "tests/support/fake_clock.h"
#include "worker/device/local_device_session.h"
#include "worker/service/worker_service.h"

namespace neuroshard::testing {

class TestWorker {
 public:
  explicit TestWorker(const std::vector<DeviceSpec>& specs, WorkerServiceOptions options = {})
      : inventory_(OpenSessions(specs)),
        service_({inventory_, groups_, IdentifyHost(), nullptr}, gate_, time_, *logger_, options),
        server_(
            *RpcServer::Start({}, {{v1::WorkerService::service_full_name(), &service_}}, gate_)),
        stub_(v1::WorkerService::NewStub(
            grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()))) {}

  v1::WorkerService::Stub& stub() { return *stub_; }
  RpcServer& server() { return *server_; }
  DeviceInventory& inventory() { return inventory_; }
  CommGroupRegistry& groups() { return groups_; }
  // Of the idle timeouts.
  FakeClock& clock() { return clock_; }
  std::string RunningJob(int device) { return inventory_.Describe()[device].running_job; }

 private:
  std::vector<std::unique_ptr<DeviceSession>> OpenSessions(const std::vector<DeviceSpec>& specs) {
    std::vector<std::unique_ptr<DeviceSession>> sessions;
    for (const DeviceSpec& spec : specs) {
      sessions.push_back(LocalDeviceSession::Open(spec, stamp_, time_).value());
    }
    return sessions;
  }

  FakeClock clock_;
  SteadyTimekeeper time_;
  RecordStamp stamp_{IdentifyHost(), [] { return std::int64_t{1'700'000'000'000}; }};
  DeviceInventory inventory_;
  CommGroupRegistry groups_{inventory_, clock_};
  std::unique_ptr<Logger> logger_ = *Logger::Create({.level = "off"});
  prometheus::Registry registry_;
  RpcMetrics metrics_{registry_};
  RpcGate gate_{16, time_, metrics_, *logger_};
  WorkerServiceImpl service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

}  // namespace neuroshard::testing
