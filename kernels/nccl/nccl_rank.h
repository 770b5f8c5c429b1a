// One rank's communicator of NCCL, which does not block; no CUDA.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "kernels/api/collective.h"
#include "kernels/nccl/nccl_library.h"

namespace neuroshard {

// Calls of NCCL return at once, and what they started is waited for here, no longer than the
// timeout and no longer than nobody aborts. Aborting ends NCCL's kernels; the device stays usable.
class NcclRank {
 public:
  NcclRank(std::shared_ptr<const NcclLibrary> library, const CommunicatorSpec& spec)
      : library_(std::move(library)), spec_(spec) {}
  ~NcclRank() { Close(); }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  const NcclLibrary& library() const { return *library_; }
  const CommunicatorSpec& spec() const { return spec_; }
  ncclComm_t handle() const { return handle_; }

  Status Connect(const ncclUniqueId& id);
  // `call`, then until NCCL has it under way, then until `done` says so; done is first asked when
  // NCCL's kernel is in the stream. ABORTED, and closed, when anything fails: the reason names the
  // rank and quotes NCCL. `give_up` is called before it is closed, for what NCCL's kernel waits
  // for.
  Status Finish(std::string_view what, const std::function<ncclResult_t()>& call,
                const std::function<StatusOr<bool>()>& done,
                const std::function<void()>& give_up = nullptr);
  void Abort() { aborted_ = true; }  // from any thread

 private:
  void Close();

  const std::shared_ptr<const NcclLibrary> library_;
  const CommunicatorSpec spec_;
  ncclComm_t handle_ = nullptr;
  Status broken_;
  std::atomic<bool> aborted_{false};
};

}  // namespace neuroshard
