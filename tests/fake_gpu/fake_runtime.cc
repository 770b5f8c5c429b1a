#include "tests/fake_gpu/fake_runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using SteadyTime = std::chrono::steady_clock;

namespace neuroshard::fake_gpu {
namespace {

// Memory up to this is handed out full of NaN: none of it was written yet.
constexpr std::size_t kFilledBytes = std::size_t{16} << 20;

struct Fault {
  std::string call;
  int number = 0;
  std::string what;
  int device = -1;  // any
  int seen = 0;
};

struct Device {
  std::size_t free_bytes = 0;
  cudaError_t broken = cudaSuccess;
};

std::int64_t Setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

std::vector<Fault> FaultsOfEnvironment() {
  std::vector<Fault> faults;
  const char* text = std::getenv("FAKE_GPU_FAIL");
  std::istringstream list(text == nullptr ? "" : text);
  for (std::string item; std::getline(list, item, ',');) {
    Fault fault;
    if (const auto at = item.find('@'); at != std::string::npos) {
      fault.device = std::atoi(item.c_str() + at + 1);
      item.resize(at);
    }
    std::istringstream parts(item);
    std::string number;
    std::getline(parts, fault.call, ':');
    std::getline(parts, number, ':');
    std::getline(parts, fault.what, ':');
    fault.number = std::atoi(number.c_str());
    if (fault.number < 0 || fault.what.empty()) {
      std::fprintf(stderr, "FAKE_GPU_FAIL: cannot read '%s'\n", item.c_str());
      std::abort();
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

// Of the process; never destroyed, as streams may outlive main.
struct World {
  std::mutex mutex;
  std::vector<Device> devices;
  std::size_t memory_bytes = 0;
  std::uint64_t seed = 0;
  std::uint64_t num_streams = 0;  // made so far
  std::vector<Fault> faults;
  std::map<const std::byte*, std::pair<std::size_t, int>> allocations;  // bytes and device
  std::map<const void*, std::size_t> pinned;                            // bytes
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams;

  World()
      : memory_bytes(static_cast<std::size_t>(Setting("FAKE_GPU_MEMORY", std::int64_t{4} << 30))),
        seed(static_cast<std::uint64_t>(Setting("FAKE_GPU_SEED", 1))),
        faults(FaultsOfEnvironment()) {
    devices.assign(static_cast<std::size_t>(Setting("FAKE_GPUS", 1)), {memory_bytes, cudaSuccess});
  }
};

World& TheWorld() {
  static World* const world = new World;
  return *world;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void UntilAnotherDeviceWaits(int device);

[[noreturn]] void Hang() {
  while (true) pause();
}

// What the environment has for this call. `hangs`: told instead of hanging here.
cudaError_t Enter(const std::string& call, int device, bool* hangs = nullptr) {
  World& world = TheWorld();
  std::unique_lock lock(world.mutex);
  if (device < 0 || device >= static_cast<int>(world.devices.size())) {
    return cudaErrorInvalidDevice;
  }
  for (Fault& fault : world.faults) {
    if (fault.call != call || (fault.device >= 0 && fault.device != device)) continue;
    if (fault.number != 0 && ++fault.seen != fault.number) continue;
    if (fault.what == "hang") {
      if (hangs == nullptr) {
        lock.unlock();
        Hang();
      }
      *hangs = true;
    } else if (fault.what == "lost") {
      world.devices[device].broken = cudaErrorLaunchFailure;
    } else if (fault.what == "late") {
      lock.unlock();
      UntilAnotherDeviceWaits(device);
      lock.lock();
    } else {
      return static_cast<cudaError_t>(std::atoi(fault.what.c_str()));
    }
  }
  return world.devices[device].broken;
}

}  // namespace
}  // namespace neuroshard::fake_gpu

using neuroshard::fake_gpu::current_device;
using neuroshard::fake_gpu::Enter;
using neuroshard::fake_gpu::Say;
using neuroshard::fake_gpu::TheWorld;
using neuroshard::fake_gpu::World;

// A queue with a thread that runs what is in it, in order; when, says the header.
struct CUstream_st {
  CUstream_st(int its_device, std::uint64_t seed)
      : device(its_device), order(seed), thread([this] { Run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      ended = true;
    }
    changed.notify_all();
    thread.join();
  }

  void Push(std::function<void()> work) {
    constexpr std::chrono::microseconds kAtOnce{200};  // what waits is not waited for longer
    std::unique_lock lock(mutex);
    const std::uint64_t kind = order() % 8, number = ++pushed;
    queue.push_back({std::move(work), kind == 0});
    changed.notify_all();
    if (kind == 1) changed.wait_for(lock, kAtOnce, [&] { return done >= number; });
  }
  bool Idle() {
    const std::lock_guard lock(mutex);
    return queue.empty();
  }
  // Until what is in it now has run.
  void Wait() {
    std::unique_lock lock(mutex);
    const std::uint64_t last = awaited = pushed;
    changed.notify_all();
    changed.wait(lock, [&] { return done >= last; });
  }
  // Somebody waits for what is in it now.
  void Await() {
    {
      const std::lock_guard lock(mutex);
      awaited = pushed;
    }
    changed.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || !queue.empty(); });
      if (queue.empty()) return;
      if (queue.front().late) {
        changed.wait_for(lock, neuroshard::fake_gpu::kLongestDelay,
                         [&] { return ended || awaited > done; });
      }
      const std::function<void()>& work = queue.front().work;
      lock.unlock();
      work();
      lock.lock();
      queue.pop_front();
      ++done;
      changed.notify_all();
    }
  }

  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  struct Item {
    std::function<void()> work;
    bool late;
  };
  std::deque<Item> queue;  // what runs is its front
  std::uint64_t pushed = 0, done = 0, awaited = 0;
  bool ended = false;
  std::mt19937_64 order;
  std::thread thread;
};

struct CUevent_st {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, reached = 0;
    SteadyTime::time_point time;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace neuroshard::fake_gpu {
namespace {

std::vector<std::shared_ptr<CUstream_st>> AllStreams() {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  const std::lock_guard lock(TheWorld().mutex);
  for (const auto& [handle, stream] : TheWorld().streams) streams.push_back(stream);
  return streams;
}

// Until everything in every stream of the process has run: a device and its peers. So real calls
// that allocate or free may do, and NCCL makes the devices of a process each other's peers.
void WaitForAllStreams() {
  for (const auto& stream : AllStreams()) stream->Wait();
}

// Until what runs on another device of the process has run for a while, as what waits does, or has
// not for long.
void UntilAnotherDeviceWaits(int device) {
  constexpr std::chrono::milliseconds kWhile{100}, kLong{400};
  const auto begin = SteadyTime::now();
  std::map<CUstream_st*, std::pair<std::uint64_t, SteadyTime::time_point>> since;
  bool others = true;
  while (others && SteadyTime::now() - begin < kLong) {
    others = false;
    LetOthersRun();
    const std::lock_guard lock(TheWorld().mutex);
    for (const auto& [handle, stream] : TheWorld().streams) {
      if (stream->device == device) continue;
      others = true;
      const std::lock_guard its_lock(stream->mutex);
      auto& [done, time] = since[handle];
      if (stream->queue.empty() || done != stream->done || time == SteadyTime::time_point()) {
        done = stream->done;
        time = SteadyTime::now();
      } else if (SteadyTime::now() - time > kWhile) {
        return;
      }
    }
  }
}

void NoteLaunched(const std::string& kernel) {
  static const char* const path = std::getenv("FAKE_GPU_LAUNCHED");
  if (path == nullptr) return;
  static std::set<std::string> names;
  const std::lock_guard lock(TheWorld().mutex);
  if (names.insert(kernel).second) std::ofstream(path, std::ios::app) << kernel << "\n";
}

cudaError_t StateOf(int device) {
  const std::lock_guard lock(TheWorld().mutex);
  return TheWorld().devices[device].broken;
}

}  // namespace

cudaError_t Launch(const std::string& kernel, cudaStream_t stream, std::function<void()> body,
                   std::function<void()> hung) {
  bool hangs = false;
  NoteLaunched(kernel);
  const cudaError_t error = Enter(kernel, stream->device, &hangs);
  if (error != cudaSuccess) return Say(error);
  if (!hung) hung = Hang;
  stream->Push([stream, hangs, hung = std::move(hung), body = std::move(body)] {
    if (hangs) return hung();
    if (StateOf(stream->device) == cudaSuccess) body();
  });
  return cudaSuccess;
}

bool TakeMemory(std::int64_t bytes) {
  const std::lock_guard lock(TheWorld().mutex);
  std::size_t& free_bytes = TheWorld().devices[current_device].free_bytes;
  if (bytes > static_cast<std::int64_t>(free_bytes)) return false;
  free_bytes -= static_cast<std::size_t>(bytes);
  return true;
}

std::int64_t PinnedBytes() {
  const std::lock_guard lock(TheWorld().mutex);
  std::int64_t sum = 0;
  for (const auto& [memory, bytes] : TheWorld().pinned) sum += static_cast<std::int64_t>(bytes);
  return sum;
}

bool IsDeviceMemory(const void* begin, std::int64_t bytes) {
  const auto* first = static_cast<const std::byte*>(begin);
  const std::lock_guard lock(TheWorld().mutex);
  auto found = TheWorld().allocations.upper_bound(first);
  if (found == TheWorld().allocations.begin()) return false;
  --found;
  return first + bytes <= found->first + found->second.first;
}

void Break(cudaStream_t stream, cudaError_t error) {
  const std::lock_guard lock(TheWorld().mutex);
  TheWorld().devices[stream->device].broken = error;
}

}  // namespace neuroshard::fake_gpu

namespace fake = neuroshard::fake_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(TheWorld().devices.size());
  return Say(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(fake::last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "an error of the fake driver";
  }
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = Enter("cudaSetDevice", device);
  if (error == cudaSuccess) current_device = device;
  return Say(error);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = Enter("cudaGetDeviceProperties", device)) return Say(error);
  *properties = {};
  std::strncpy(properties->name, fake::kFakeName, sizeof properties->name - 1);
  properties->totalGlobalMem = TheWorld().memory_bytes;
  properties->l2CacheSize = 1 << 20;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t error = Enter("cudaDeviceGetPCIBusId", device)) return Say(error);
  std::snprintf(text, static_cast<std::size_t>(length), "fa4e:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  if (const cudaError_t error = Enter("cudaMemGetInfo", current_device)) return Say(error);
  const std::lock_guard lock(TheWorld().mutex);
  *free_bytes = TheWorld().devices[current_device].free_bytes;
  *total = TheWorld().memory_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t error = Enter("cudaMalloc", current_device)) return Say(error);
  fake::WaitForAllStreams();
  const std::lock_guard lock(TheWorld().mutex);
  std::size_t& free_bytes = TheWorld().devices[current_device].free_bytes;
  if (bytes > free_bytes) return Say(cudaErrorMemoryAllocation);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return Say(cudaErrorMemoryAllocation);
  if (bytes <= fake::kFilledBytes) std::memset(mapped, 0xff, bytes);
  free_bytes -= bytes;
  TheWorld().allocations[static_cast<std::byte*>(mapped)] = {bytes, current_device};
  *memory = mapped;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = Enter("cudaFree", current_device)) return Say(error);
  fake::WaitForAllStreams();
  const std::lock_guard lock(TheWorld().mutex);
  const auto found = TheWorld().allocations.find(static_cast<std::byte*>(memory));
  if (found == TheWorld().allocations.end()) return Say(cudaErrorInvalidValue);
  const auto [bytes, device] = found->second;
  munmap(memory, bytes);
  TheWorld().devices[device].free_bytes += bytes;
  TheWorld().allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const cudaError_t error = Enter("cudaHostAlloc", current_device)) return Say(error);
  fake::WaitForAllStreams();
  *memory = std::calloc(1, bytes);
  if (*memory == nullptr) return Say(cudaErrorMemoryAllocation);
  if (bytes <= fake::kFilledBytes) std::memset(*memory, 0xff, bytes);
  const std::lock_guard lock(TheWorld().mutex);
  TheWorld().pinned[*memory] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = Enter("cudaFreeHost", current_device)) return Say(error);
  fake::WaitForAllStreams();
  {
    const std::lock_guard lock(TheWorld().mutex);
    if (TheWorld().pinned.erase(memory) == 0) return Say(cudaErrorInvalidValue);
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = Enter("cudaStreamCreateWithFlags", current_device)) {
    return Say(error);
  }
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  auto made = std::make_shared<CUstream_st>(current_device, world.seed << 32 | ++world.num_streams);
  *stream = made.get();
  world.streams.emplace(*stream, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = Enter("cudaStreamDestroy", stream->device);
  std::shared_ptr<CUstream_st> last;  // its thread ends when nobody waits for it
  {
    const std::lock_guard lock(TheWorld().mutex);
    last = std::move(TheWorld().streams.at(stream));
    TheWorld().streams.erase(stream);
  }
  return Say(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = Enter("cudaStreamQuery", stream->device)) return Say(error);
  return Say(stream->Idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = Enter("cudaStreamSynchronize", stream->device)) return Say(error);
  stream->Wait();
  return Say(fake::StateOf(stream->device));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto is_where = [bytes](const void* memory, bool of_device) {
    return fake::IsDeviceMemory(memory, static_cast<std::int64_t>(bytes)) == of_device;
  };
  if (bytes == 0) return cudaSuccess;
  if (!is_where(to, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
      !is_where(from, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)) {
    return Say(cudaErrorInvalidValue);
  }
  return fake::Launch("cudaMemcpyAsync", stream, [=] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return fake::Launch("cudaMemsetAsync", stream, [=] { std::memset(memory, value, bytes); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (const cudaError_t error = Enter("cudaEventCreate", current_device)) return Say(error);
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = Enter("cudaEventRecord", stream->device)) return Say(error);
  const std::shared_ptr<CUevent_st::State> state = event->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(state->mutex);
    number = ++state->recorded;
  }
  stream->Push([state, number] {
    {
      const std::lock_guard lock(state->mutex);
      state->reached = number;
      state->time = SteadyTime::now();
    }
    state->changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = Enter("cudaEventQuery", current_device)) return Say(error);
  const std::lock_guard lock(event->state->mutex);
  return Say(event->state->reached == event->state->recorded ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = Enter("cudaEventSynchronize", current_device)) return Say(error);
  {
    for (const auto& stream : fake::AllStreams()) stream->Await();
    CUevent_st::State& state = *event->state;
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.reached == state.recorded; });
  }
  return Say(fake::StateOf(current_device));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = Enter("cudaEventElapsedTime", current_device)) return Say(error);
  SteadyTime::time_point times[2];
  for (const cudaEvent_t event : {begin, end}) {
    const std::lock_guard lock(event->state->mutex);
    if (event->state->recorded == 0) return Say(cudaErrorInvalidResourceHandle);
    if (event->state->reached != event->state->recorded) return Say(cudaErrorNotReady);
    times[event == end] = event->state->time;
  }
  *milliseconds =
      begin == end ? 0 : std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
  return cudaSuccess;
}

}  // extern "C"
