#include "worker/process/device_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "common/codec/measurement_codec.h"
#include "common/codec/message_fields.h"
#include "worker/process/device_server.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How late a stop is passed on. Rare enough not to disturb what is measured.
constexpr milliseconds kStopPollInterval{20};
constexpr milliseconds kNoLimit{0};

std::string HowItEnded(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return fmt::format("was ended by SIG{} ({}){}", sigabbrev_np(number), strsignal(number),
                       number == SIGKILL ? ", as for lack of memory" : "");
  }
  return fmt::format("ended with status {}", WEXITSTATUS(wait_status));
}

}  // namespace

StatusOr<std::unique_ptr<DeviceProcess>> DeviceProcess::Start(DeviceProcessOptions options,
                                                              DeathObserver observer) {
  std::unique_ptr<DeviceProcess> process(
      new DeviceProcess(std::move(options), std::move(observer)));
  NS_RETURN_IF_ERROR(process->Launch());
  return process;
}

DeviceProcess::~DeviceProcess() {
  if (pid_ != 0) Reap("").IgnoreError();
}

Status DeviceProcess::Launch() {
  if (const Status spawned = starter_.Run([this] { return Spawn(); }).get(); !spawned.ok()) {
    return Unavailable("the process of the device cannot be started: {}", Message(spawned));
  }
  internal::DeviceCall call;
  *call.mutable_open_device() = options_.device;
  const auto answer = Call(std::move(call), NeverStop(), options_.start_timeout);
  if (!answer.ok()) {
    if (pid_ != 0) Reap("").IgnoreError();
    return answer.status();
  }
  properties_ = DecodeProperties(answer->device());
  return absl::OkStatus();
}

Status DeviceProcess::Spawn() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Unavailable("{}", std::strerror(errno));
  }
  auto own = std::make_shared<MessageSocket>(FileDescriptor(ends[0]));
  const FileDescriptor others(ends[1]);  // closed at the end
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // What a library prints belongs to the log; stdout says where the worker listens.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kDeviceSocketFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kDeviceSocketFd + 1);
  std::string name = "neuroshard-worker", argument = kDeviceProcessArgument;
  char* const argv[] = {name.data(), argument.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, options_.program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Unavailable("{}: {}", options_.program, std::strerror(error));
  pid_ = pid;
  cut_off_ = false;
  const MutexLock lock(socket_mutex_);
  socket_ = std::move(own);
  return absl::OkStatus();
}

Status DeviceProcess::Prepare() {
  siginfo_t ended{};
  const bool runs =
      pid_ != 0 &&
      waitid(P_PID, static_cast<id_t>(pid_.load()), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == 0;
  if (runs) return absl::OkStatus();
  if (pid_ != 0) {
    Reap("").IgnoreError();
    if (observer_) observer_(options_.device.index(), how_it_ended_);
  }
  return Launch();
}

Status DeviceProcess::Reap(const std::string& why_killed) {
  // Has no effect on one that has ended, or is about to: how it ended is decided by then.
  kill(pid_, SIGKILL);
  int wait_status = 0;
  waitpid(pid_, &wait_status, 0);
  pid_ = 0;
  {
    const MutexLock lock(socket_mutex_);
    socket_.reset();
  }
  how_it_ended_ = why_killed.empty() ? HowItEnded(wait_status) : why_killed;
  return Internal("the process that drives device {} {}; the device can be used again",
                  options_.device.index(), how_it_ended_);
}

StatusOr<internal::DeviceAnswer> DeviceProcess::Call(internal::DeviceCall call,
                                                     const StopSignal& stop, milliseconds limit) {
  std::shared_ptr<MessageSocket> socket;
  {
    const MutexLock lock(socket_mutex_);
    socket = socket_;
  }
  if (socket == nullptr) {
    return Internal("the process that drives device {} {}", options_.device.index(), how_it_ended_);
  }
  const auto died = [&](const std::string& why_killed) {
    const Status status = Reap(why_killed);
    if (observer_) observer_(options_.device.index(), how_it_ended_);
    return status;
  };
  call.set_number(++calls_);
  Status sent = socket->Send(call.SerializeAsString());
  std::optional<steady_clock::time_point> kill_at;
  if (limit != kNoLimit) kill_at = steady_clock::now() + limit;
  bool stop_sent = false;
  while (sent.ok()) {
    if (socket->WaitForMessage(kStopPollInterval)) {
      const StatusOr<std::string> bytes = socket->Receive();
      internal::DeviceAnswer answer;
      if (!bytes.ok() || !answer.ParseFromString(*bytes) || answer.number() != calls_) break;
      NS_RETURN_IF_ERROR(DecodeStatus(answer.status()));
      return answer;
    }
    if (!stop_sent && stop.ShouldStop()) {
      stop_sent = true;
      internal::DeviceCall message;
      message.set_number(calls_);
      message.mutable_stop();
      sent = socket->Send(message.SerializeAsString());
    }
    if ((stop_sent || cut_off_) && !kill_at.has_value()) {
      kill_at = steady_clock::now() + options_.kill_grace;
    }
    if (kill_at.has_value() && steady_clock::now() >= *kill_at) {
      return died("did not answer in time and was ended");
    }
  }
  return died("");
}

StatusOr<ComputeMeasurement> DeviceProcess::MeasureCompute(const ComputeSample& sample,
                                                           const MeasurementSettings& settings,
                                                           const StopSignal& stop) {
  internal::DeviceCall call;
  *call.mutable_measure_compute()->mutable_sample() = EncodeComputeSample(sample);
  *call.mutable_measure_compute()->mutable_settings() = EncodeMeasurementSettings(settings);
  NS_ASSIGN_OR_RETURN(const internal::DeviceAnswer answer, Call(std::move(call), stop, kNoLimit));
  return DecodeComputeMeasurement(answer.compute());
}

StatusOr<std::string> DeviceProcess::OpenRank(const CommunicatorSpec& spec) {
  cut_off_ = false;
  internal::DeviceCall call;
  call.mutable_open_rank()->set_rank(spec.rank);
  call.mutable_open_rank()->set_world_size(spec.world_size);
  call.mutable_open_rank()->set_timeout_ms(spec.timeout.count());
  NS_ASSIGN_OR_RETURN(internal::DeviceAnswer answer,
                      Call(std::move(call), NeverStop(), options_.start_timeout));
  return std::move(*answer.mutable_rank_address());
}

Status DeviceProcess::ConnectRank(const std::vector<RankAddress>& addresses) {
  internal::DeviceCall call;
  for (const RankAddress& one : addresses) {
    PutFields(one, *call.mutable_connect_rank()->add_addresses());
  }
  return Call(std::move(call), NeverStop(), kNoLimit).status();
}

StatusOr<CommMeasurement> DeviceProcess::MeasureComm(const CommSample& sample,
                                                     const MeasurementSettings& settings,
                                                     const StopSignal& stop) {
  internal::DeviceCall call;
  *call.mutable_measure_comm()->mutable_sample() = EncodeCommSample(sample);
  *call.mutable_measure_comm()->mutable_settings() = EncodeMeasurementSettings(settings);
  NS_ASSIGN_OR_RETURN(const internal::DeviceAnswer answer, Call(std::move(call), stop, kNoLimit));
  return DecodeCommMeasurement(answer.comm());
}

void DeviceProcess::CloseRank() {
  if (pid_ == 0) return;
  internal::DeviceCall call;
  call.mutable_close_rank();
  Call(std::move(call), NeverStop(), options_.kill_grace).status().IgnoreError();
  cut_off_ = false;  // what the device does next is not the rank's
}

void DeviceProcess::CutOff() {
  internal::DeviceCall call;
  call.mutable_cut_off();
  const MutexLock lock(socket_mutex_);
  cut_off_ = true;
  if (socket_ != nullptr) socket_->Send(call.SerializeAsString()).IgnoreError();
}

}  // namespace neuroshard
