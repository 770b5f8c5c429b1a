#include "kernels/nccl/nccl_rank.h"

#include <dlfcn.h>

#include <thread>
#include <type_traits>

namespace neuroshard {
namespace {

constexpr int kOldestVersion = 21800;

using SteadyTime = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSpinning{2};
constexpr std::chrono::microseconds kPollInterval{50};

}  // namespace

StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Load() {
  // Never unloaded: NCCL's thread that waits for the ranks of a group outlives one that is given
  // up.
  void* file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (file == nullptr) {
    const char* reason = dlerror();
    return Unavailable("no NCCL: {}", reason == nullptr ? "unknown reason" : reason);
  }
  std::shared_ptr<NcclLibrary> library(new NcclLibrary(file));
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(file, name));
    if (*function == nullptr) missing = name;
  };
  find("ncclGetVersion", &library->GetVersion);
  find("ncclGetUniqueId", &library->GetUniqueId);
  find("ncclCommInitRankConfig", &library->CommInitRankConfig);
  find("ncclCommGetAsyncError", &library->CommGetAsyncError);
  find("ncclCommAbort", &library->CommAbort);
  find("ncclGetLastError", &library->GetLastError);
  find("ncclGetErrorString", &library->GetErrorString);
  find("ncclGroupStart", &library->GroupStart);
  find("ncclGroupEnd", &library->GroupEnd);
  find("ncclSend", &library->Send);
  find("ncclRecv", &library->Recv);
  find("ncclAllReduce", &library->AllReduce);
  find("ncclAllGather", &library->AllGather);
  find("ncclReduceScatter", &library->ReduceScatter);
  if (!missing.empty()) return Unavailable("the NCCL found has no {}", missing);
  int version = 0;
  if (library->GetVersion(&version) != ncclSuccess || version < kOldestVersion) {
    return Unavailable("the NCCL found is older than 2.18");
  }
  return library;
}

NcclLibrary::~NcclLibrary() {
  if (file_ != nullptr) dlclose(file_);
}

std::string NcclLibrary::Version() const {
  int version = 0;
  (void)GetVersion(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status NcclRank::Connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Finish(
      "connecting",
      [&] {
        return library_->CommInitRankConfig(&handle_, spec_.world_size, id, spec_.rank, &config);
      },
      [] { return true; });
}

Status NcclRank::Finish(std::string_view what, const std::function<ncclResult_t()>& call,
                        const std::function<StatusOr<bool>()>& done,
                        const std::function<void()>& give_up) {
  NS_RETURN_IF_ERROR(broken_);
  const auto begin = SteadyTime::now(), deadline = begin + spec_.timeout;
  std::string reason;
  ncclResult_t result = aborted_ ? ncclInProgress : call();
  bool under_way = false;
  while (reason.empty()) {
    if (aborted_) {
      reason = "aborted";
    } else if (result != ncclSuccess && result != ncclInProgress) {
      reason =
          fmt::format("{}: {}", library_->GetErrorString(result), library_->GetLastError(nullptr));
    } else if (SteadyTime::now() > deadline) {
      reason = fmt::format("no answer from the other ranks within {} ms", spec_.timeout.count());
    } else if (!under_way && handle_ != nullptr &&
               library_->CommGetAsyncError(handle_, &result) == ncclSuccess &&
               result == ncclSuccess) {
      under_way = true;
    } else if (under_way) {
      const StatusOr<bool> finished = done();
      if (!finished.ok()) {
        reason = Message(finished.status());
      } else if (*finished) {
        return absl::OkStatus();
      } else if (library_->CommGetAsyncError(handle_, &result) != ncclSuccess) {
        result = ncclInternalError;
      }
    }
    // Ranks may be more than cores: one that waits for long leaves its core to those it waits for.
    if (SteadyTime::now() - begin > kSpinning) {
      std::this_thread::sleep_for(kPollInterval);
    } else {
      std::this_thread::yield();
    }
  }
  broken_ =
      Aborted("{} of rank {} in a group of {}: {}", what, spec_.rank, spec_.world_size, reason);
  if (give_up) give_up();
  Close();
  return broken_;
}

// Not ncclCommDestroy: that waits for peers, which may be gone.
void NcclRank::Close() {
  if (handle_ == nullptr) return;
  (void)library_->CommAbort(handle_);  // NCCL's thread that connects may still read the handle
  handle_ = nullptr;
}

}  // namespace neuroshard
