// A fake libnccl.so.2 on the fake runtime: what ranks send each other are files in a folder of the
// group, whose name is in the unique id, so that ranks may be in one process or in several of one
// host. A call under way is told as such (ncclInProgress) until it was asked about a few times, and
// only then is its kernel in the stream. FAKE_NCCL_DIR is where the folders are, /dev/shm unless
// stated. FAKE_NCCL_MEMORY=BYTES: what a rank takes of its device with its first exchange of each
// kind (send and receive, and each other collective), until the rank ends; 0 unless stated.
#include <fmt/format.h>
#include <nccl.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_gpu/fake_runtime.h"

namespace fs = std::filesystem;
using neuroshard::fake_gpu::LetOthersRun;

struct ncclComm {
  fs::path folder;
  int rank = 0, size = 0;
  std::string device;  // as no other rank of the host may have
  std::atomic<bool> aborted = false;
  std::atomic<ncclResult_t> state = ncclInProgress;
  std::atomic<int> running = 0;  // kernels in streams
  std::vector<std::uint64_t> sent, received;
  std::set<std::string> kinds;  // of exchanges that there were
  int polls_left = 0;
  std::function<cudaError_t()> pending;
  std::thread connecting;

  bool Waits(const fs::path& file) {
    while (!fs::exists(file)) {
      if (aborted) return false;
      LetOthersRun();
    }
    return true;
  }

  void Write(const fs::path& file, std::span<const std::byte> bytes) {
    const fs::path part = file.string() + ".part";
    std::ofstream(part, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    std::error_code ignored;
    fs::rename(part, file, ignored);
  }

  fs::path Message(int from, int to, std::uint64_t number) const {
    return folder / fmt::format("{}.{}.{}", from, to, number);
  }

  void SendTo(int peer, const void* bytes, std::size_t count) {
    Write(Message(rank, peer, sent[peer]++), {static_cast<const std::byte*>(bytes), count});
  }

  // Ends early when the rank is aborted or the peer has left the group.
  bool ReceiveFrom(int peer, void* bytes, std::size_t count) {
    const fs::path file = Message(peer, rank, received[peer]++);
    const fs::path gone = folder / fmt::format("gone.{}", peer);
    for (int i = 0; !fs::exists(file); ++i) {
      if (aborted) return false;
      if (i % 64 == 63 && fs::exists(gone) && !fs::exists(file)) {
        state = ncclRemoteError;
        while (!aborted) LetOthersRun();  // NCCL's kernel goes on until it is aborted
        return false;
      }
      LetOthersRun();
    }
    if (fs::file_size(file) != count) std::abort();  // undefined in NCCL
    std::ifstream(file, std::ios::binary)
        .read(static_cast<char*>(bytes), static_cast<std::streamsize>(count));
    fs::remove(file);
    return true;
  }
};

namespace {

using Work = std::function<void()>;

struct Transfer {
  ncclComm_t comm;
  cudaStream_t stream;
  bool sends;
  void* memory;
  std::size_t bytes;
  int peer;
};

// The last of the process, never freed.
std::atomic<const char*> last_error = "";

thread_local int group_depth = 0;
thread_local std::vector<Transfer> grouped;

std::size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat32:
      return 4;
    case ncclFloat64:
      return 8;
    default:
      std::abort();  // none that is used
  }
}

std::int64_t BytesOfKind() {
  const char* text = std::getenv("FAKE_NCCL_MEMORY");
  return text == nullptr ? 0 : std::atoll(text);
}

ncclResult_t Begin(ncclComm_t comm, cudaStream_t stream, const char* kind, Work work) {
  if (comm->pending || comm->state != ncclSuccess) return ncclInvalidUsage;
  if (!comm->kinds.contains(kind)) {
    if (!neuroshard::fake_gpu::TakeMemory(BytesOfKind())) {
      last_error = "Cuda failure 2 'out of memory'";
      return comm->state = ncclUnhandledCudaError;
    }
    comm->kinds.insert(kind);
  }
  comm->polls_left = 2;
  comm->pending = [comm, stream, work = std::move(work)] {
    ++comm->running;
    const auto until_aborted = [comm] {
      while (!comm->aborted) LetOthersRun();
      --comm->running;
    };
    const auto run = [comm, work] {
      work();
      --comm->running;
    };
    const cudaError_t error =
        neuroshard::fake_gpu::Launch("NcclKernel", stream, run, until_aborted);
    if (error != cudaSuccess) --comm->running;
    return error;
  };
  comm->state = ncclInProgress;
  return ncclInProgress;
}

template <typename Number>
void Combine(void* to, const void* from, std::size_t count, ncclRedOp_t op) {
  auto* sums = static_cast<Number*>(to);
  const auto* values = static_cast<const Number*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = op == ncclMax ? std::max(sums[i], values[i]) : sums[i] + values[i];
  }
}

// Combines block r of every rank on rank r, or one block of every rank on all of them.
void Reduce(ncclComm_t comm, const void* from, void* to, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op, bool scatter) {
  const std::size_t bytes = count * BytesOf(type);
  const auto* blocks = static_cast<const std::byte*>(from);
  for (int peer = 0; peer < comm->size; ++peer) {
    comm->SendTo(peer, blocks + (scatter ? peer * bytes : 0), bytes);
  }
  std::vector<std::byte> result, other(bytes);
  for (int peer = 0; peer < comm->size; ++peer) {
    if (!comm->ReceiveFrom(peer, other.data(), bytes)) return;
    if (peer == 0) {
      result = other;
    } else if (type == ncclFloat32) {
      Combine<float>(result.data(), other.data(), count, op);
    } else {
      Combine<double>(result.data(), other.data(), count, op);
    }
  }
  std::memcpy(to, result.data(), bytes);
}

void Connect(ncclComm_t comm) {
  std::error_code ignored;
  fs::create_directories(comm->folder, ignored);
  const auto hello = [&](int rank) { return comm->folder / fmt::format("rank.{}", rank); };
  comm->Write(hello(comm->rank), std::as_bytes(std::span(comm->device)));
  std::vector<std::string> devices;
  for (int rank = 0; rank < comm->size; ++rank) {
    if (!comm->Waits(hello(rank))) return;
    std::ifstream file(hello(rank));
    std::getline(file, devices.emplace_back());
  }
  for (int rank = 0; rank < comm->size; ++rank) {
    if (rank == comm->rank || devices[rank] != comm->device) continue;
    last_error = strdup(fmt::format("Duplicate GPU detected : rank {} and rank {} both on {}",
                                    comm->rank, rank, comm->device)
                            .c_str());
    comm->state = ncclInvalidUsage;
    return;
  }
  comm->state = ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError          ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage       ? "invalid usage"
         : result == ncclInProgress         ? "NCCL operation in progress"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
                                            : "an error of the fake NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return last_error; }

// As NCCL's: a random number, then the address that ranks would connect to.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  for (char& c : id->internal) c = static_cast<char>(random());
  sockaddr_in6 none{};
  std::memcpy(id->internal + 8, &none, sizeof none);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::memcpy(id->internal + 8, &address, sizeof address);
  id->internal[0] = 0x7f;  // no family of addresses
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  auto* comm = new ncclComm;
  const char* base = std::getenv("FAKE_NCCL_DIR");
  std::string name = "fake-nccl-";
  for (int i = 0; i < 8; ++i)
    name += fmt::format("{:02x}", static_cast<unsigned char>(id.internal[i]));
  comm->folder = fs::path(base == nullptr ? "/dev/shm" : base) / name;
  comm->rank = rank;
  comm->size = size;
  comm->sent.resize(size);
  comm->received.resize(size);
  char bus[32] = {};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  (void)cudaDeviceGetPCIBusId(bus, static_cast<int>(sizeof bus), device);
  const char* host = std::getenv("NCCL_HOSTID");
  comm->device = fmt::format("{} of host {}", bus, host == nullptr ? "this" : host);
  *handle = comm;
  comm->connecting = std::thread(Connect, comm);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm->pending && --comm->polls_left <= 0) {
    const auto pending = std::exchange(comm->pending, nullptr);
    comm->state = pending() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  }
  *result = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  if (comm->connecting.joinable()) comm->connecting.join();
  while (comm->running > 0) LetOthersRun();
  neuroshard::fake_gpu::TakeMemory(-BytesOfKind() * static_cast<std::int64_t>(comm->kinds.size()));
  std::ofstream(comm->folder / fmt::format("gone.{}", comm->rank)).put('x');
  bool all = true;
  std::error_code ignored;
  for (int rank = 0; rank < comm->size; ++rank) {
    all = all && fs::exists(comm->folder / fmt::format("gone.{}", rank), ignored);
  }
  if (all) fs::remove_all(comm->folder, ignored);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || grouped.empty()) return ncclSuccess;
  std::vector<Transfer> transfers = std::exchange(grouped, {});
  const ncclComm_t comm = transfers[0].comm;
  const cudaStream_t stream = transfers[0].stream;
  return Begin(comm, stream, "send and receive", [comm, transfers = std::move(transfers)] {
    for (const Transfer& transfer : transfers) {
      if (transfer.sends) comm->SendTo(transfer.peer, transfer.memory, transfer.bytes);
    }
    for (const Transfer& transfer : transfers) {
      if (transfer.sends) continue;
      if (!comm->ReceiveFrom(transfer.peer, transfer.memory, transfer.bytes)) return;
    }
  });
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (group_depth == 0) return ncclInvalidUsage;
  grouped.push_back({comm, stream, true, const_cast<void*>(from), count * BytesOf(type), peer});
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (group_depth == 0) return ncclInvalidUsage;
  grouped.push_back({comm, stream, false, to, count * BytesOf(type), peer});
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Begin(comm, stream, "all-reduce", [=] { Reduce(comm, from, to, count, type, op, false); });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Begin(comm, stream, "reduce-scatter",
               [=] { Reduce(comm, from, to, count, type, op, true); });
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Begin(comm, stream, "all-gather", [=] {
    const std::size_t bytes = count * BytesOf(type);
    for (int peer = 0; peer < comm->size; ++peer) comm->SendTo(peer, from, bytes);
    for (int peer = 0; peer < comm->size; ++peer) {
      if (!comm->ReceiveFrom(peer, static_cast<std::byte*>(to) + peer * bytes, bytes)) return;
    }
  });
}

}  // extern "C"
