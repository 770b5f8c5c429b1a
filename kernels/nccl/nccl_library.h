// NCCL, looked for when the process needs it: the same binary starts on hosts without it.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "common/base/status.h"

namespace neuroshard {

// The functions that are used, under their names without the prefix.
class NcclLibrary {
 public:
  // UNAVAILABLE, with the loader's reason, when there is no libnccl.so.2 or it is older than 2.18
  // (the first with communicators that do not block).
  static StatusOr<std::shared_ptr<const NcclLibrary>> Load();
  NcclLibrary() = default;  // without functions: for tests, which put in their own
  ~NcclLibrary();
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  std::string Version() const;  // "2.28.9"

  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclReduceScatter) ReduceScatter = nullptr;

 private:
  explicit NcclLibrary(void* file) : file_(file) {}
  void* file_ = nullptr;
};

}  // namespace neuroshard
