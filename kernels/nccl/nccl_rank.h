// One rank's communicator of NCCL, which does not block, NCCL's library, which is looked for when
// the process needs it, so that the same binary starts on hosts without it, and its unique id as
// text. No CUDA.
#pragma once

#include <absl/strings/escaping.h>
#include <nccl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// A unique id travels between ranks as an address, in the digits of absl::BytesToHexString. Fills
// all of `bytes`; false unless the text has just as many.
inline bool HexToBytes(std::string_view text, std::span<char> bytes) {
  const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (text.size() != 2 * bytes.size() || !is_hex) return false;
  std::ranges::copy(absl::HexStringToBytes({text.data(), text.size()}), bytes.begin());
  return true;
}

// What may be the socket in a unique id, which is rank 0's and which all ranks connect to. NCCL
// keeps it behind a random number of 8 bytes (bootstrap.h, ncclBootstrapHandle), before 2.16 at the
// beginning; the likelier first.
inline std::vector<SocketAddress> AddressesInUniqueId(std::span<const char> bytes) {
  std::vector<SocketAddress> found;
  for (const std::size_t offset : {std::size_t{8}, std::size_t{0}}) {
    SocketAddress address;
    if (bytes.size() < offset + sizeof(sockaddr_in6)) continue;
    std::memcpy(&address.storage, bytes.data() + offset, sizeof(sockaddr_in6));
    const int family = address.storage.ss_family;
    if (family != AF_INET && family != AF_INET6) continue;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back(address);
  }
  return found;
}

// Whether the socket in a unique id is in one of the networks: INVALID_ARGUMENT quotes both. What
// could be either must be in them as both.
inline Status CheckUniqueId(std::span<const char> bytes, const std::vector<IpNetwork>& networks) {
  const std::vector<SocketAddress> addresses = AddressesInUniqueId(bytes);
  if (addresses.empty()) return InvalidArgument("no address is found in this unique id of NCCL");
  for (const SocketAddress& address : addresses) {
    if (!AnyContains(networks, address.get())) {
      return InvalidArgument("{} is outside of the networks that this worker connects to: {}",
                             ToText(address), ToText(networks));
    }
  }
  return absl::OkStatus();
}

// The functions of NCCL that are used, under their names without the prefix.
class NcclLibrary {
 public:
  // UNAVAILABLE, with the loader's reason, when there is no libnccl.so.2 or it is older than 2.18
  // (the first with communicators that do not block).
  static StatusOr<std::shared_ptr<const NcclLibrary>> Load();
  NcclLibrary() = default;  // without functions: for tests, which put in their own
  ~NcclLibrary();
  NcclLibrary(NcclLibrary&&) = delete;

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

// Calls of NCCL return at once, and what they started is waited for here, no longer than the
// timeout and no longer than nobody aborts. Aborting ends NCCL's kernels; the device stays usable.
class NcclRank {
 public:
  NcclRank(std::shared_ptr<const NcclLibrary> library, const CommunicatorSpec& spec)
      : library_(std::move(library)), spec_(spec) {}
  ~NcclRank() { Close(); }
  NcclRank(NcclRank&&) = delete;

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
