#include "kernels/nccl/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

namespace neuroshard {
namespace {

constexpr int kOldestVersion = 21800;

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

}  // namespace neuroshard
