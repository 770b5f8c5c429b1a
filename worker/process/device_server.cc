#include "worker/process/device_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <utility>

#include "common/codec/measurement_codec.h"
#include "worker/process/device_messages.h"

namespace neuroshard {
namespace {

constexpr int kDeviceUnusable = 3;

class DeviceServer {
 public:
  explicit DeviceServer(const DeviceOpener& open)
      : open_(open), socket_(FileDescriptor(kDeviceSocketFd)) {}

  // Returns when the other end is gone. The calls run on a thread of their own, so that this one
  // hears of stops, and of the end, meanwhile.
  void Run() {
    while (true) {
      const StatusOr<std::string> bytes = socket_.Receive();
      internal::DeviceCall call;
      if (!bytes.ok() || !call.ParseFromString(*bytes)) return;
      if (call.has_stop()) {
        StopCall(call.number());
      } else if (call.has_cut_off()) {
        if (DeviceSession* session = Session()) session->CutOff();
      } else {
        BeginCall(call.number());
        // The future says nothing: the answer is sent.
        std::ignore = caller_.Run([this, call = std::move(call)] { Answer(call); });
      }
    }
  }

 private:
  void BeginCall(std::uint64_t number) {
    const MutexLock lock(mutex_);
    number_ = number;
    stop_ = std::make_shared<ManualStop>();
  }
  void StopCall(std::uint64_t number) {
    const MutexLock lock(mutex_);
    if (number == number_) stop_->Stop();
  }
  std::shared_ptr<ManualStop> CurrentStop() {
    const MutexLock lock(mutex_);
    return stop_;
  }
  DeviceSession* Session() {
    const MutexLock lock(mutex_);
    return session_.get();
  }

  void Answer(const internal::DeviceCall& call) {
    internal::DeviceAnswer answer;
    answer.set_number(call.number());
    Status status;
    try {
      status = Do(call, answer);
    } catch (const std::exception& error) {
      status = Internal("uncaught in the process of a device: {}", error.what());
    }
    *answer.mutable_status() = EncodeStatus(status);
    const Status sent = socket_.Send(answer.SerializeAsString());
    if (!sent.ok()) _exit(0);
    if (Session() == nullptr || !Session()->Prepare().ok()) _exit(kDeviceUnusable);
  }

  Status Do(const internal::DeviceCall& call, internal::DeviceAnswer& answer) {
    if (call.has_open_device()) {
      NS_ASSIGN_OR_RETURN(auto session, open_(call.open_device()));
      *answer.mutable_device() = EncodeProperties(session->properties());
      const MutexLock lock(mutex_);
      session_ = std::move(session);
      return absl::OkStatus();
    }
    DeviceSession* const session = Session();
    if (session == nullptr) return FailedPrecondition("no device is open");
    const std::shared_ptr<ManualStop> stop = CurrentStop();
    switch (call.kind_case()) {
      case internal::DeviceCall::kMeasureCompute: {
        NS_ASSIGN_OR_RETURN(const ComputeSample sample,
                            DecodeComputeSample(call.measure_compute().sample()));
        NS_ASSIGN_OR_RETURN(const MeasurementSettings settings,
                            DecodeMeasurementSettings(call.measure_compute().settings()));
        NS_ASSIGN_OR_RETURN(const ComputeMeasurement record,
                            session->MeasureCompute(sample, settings, *stop));
        *answer.mutable_compute() = EncodeComputeMeasurement(record);
        return absl::OkStatus();
      }
      case internal::DeviceCall::kOpenRank: {
        const internal::OpenRank& request = call.open_rank();
        NS_ASSIGN_OR_RETURN(
            std::string address,
            session->OpenRank({.rank = request.rank(),
                               .world_size = request.world_size(),
                               .timeout = std::chrono::milliseconds(request.timeout_ms())}));
        answer.set_rank_address(std::move(address));
        return absl::OkStatus();
      }
      case internal::DeviceCall::kConnectRank: {
        std::vector<RankAddress> addresses;
        for (const v1::RankAddress& one : call.connect_rank().addresses()) {
          addresses.push_back({.rank = one.rank(), .address = one.address()});
        }
        return session->ConnectRank(addresses);
      }
      case internal::DeviceCall::kMeasureComm: {
        NS_ASSIGN_OR_RETURN(const CommSample sample,
                            DecodeCommSample(call.measure_comm().sample()));
        NS_ASSIGN_OR_RETURN(const MeasurementSettings settings,
                            DecodeMeasurementSettings(call.measure_comm().settings()));
        NS_ASSIGN_OR_RETURN(const CommMeasurement record,
                            session->MeasureComm(sample, settings, *stop));
        *answer.mutable_comm() = EncodeCommMeasurement(record);
        return absl::OkStatus();
      }
      case internal::DeviceCall::kCloseRank:
        session->CloseRank();
        return absl::OkStatus();
      default:
        return Internal("not a call of a device's process");
    }
  }

  const DeviceOpener& open_;
  MessageSocket socket_;
  Mutex mutex_;
  std::uint64_t number_ NS_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<ManualStop> stop_ NS_GUARDED_BY(mutex_);
  std::unique_ptr<DeviceSession> session_ NS_GUARDED_BY(mutex_);
  DeviceExecutor caller_;
};

}  // namespace

void RunDeviceProcess(const DeviceOpener& open) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  DeviceServer server(open);
  server.Run();
  _exit(0);  // without waiting for what the device does
}

}  // namespace neuroshard
