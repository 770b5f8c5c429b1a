// DeviceBackend: the interface of a kind of hardware. One object per device; calls of one object
// come from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/api/collective.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard {

// Identity and abilities of a device.
struct DeviceProperties {
  std::string name;                            // "AMD EPYC ...", "NVIDIA H200"
  std::string backend;                         // of common/domain/backend_names.h
  std::string collective_backend;              // CollectiveBackend::name()
  std::int64_t memory_bytes = 0;               // that measurements may use
  std::map<std::string, std::string> details;  // instruction set, library versions, ...
  EmbeddingAbilities embedding = {};
  // EmbeddingOp::GenerateInputs makes ids on the device; the host need not hold them.
  bool generates_ids = false;
};

// One device: makes embedding ops, flushes its caches, times work on itself. All calls come from
// the thread that made it.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual const DeviceProperties& properties() const = 0;

  // RESOURCE_EXHAUSTED when the tables, their state and the activations do not fit the device's
  // memory (both sizes quoted).
  virtual StatusOr<std::unique_ptr<EmbeddingOp>> CreateEmbeddingOp(const EmbeddingOpSpec& spec) = 0;

  // Puts the caches into a state that does not depend on what ran before.
  virtual void FlushCache() = 0;

  // Runs `work` on the device and returns how long the device took, without launch overhead of
  // earlier work. NaN when the device failed (Health).
  virtual double TimeMs(const std::function<void()>& work) = 0;

  virtual StatusOr<std::unique_ptr<PendingCommunicator>> OpenCommunicator(
      const CommunicatorSpec& spec) = 0;

  // Is not OK after an error that only a new process gets rid of. Any thread may ask.
  virtual Status Health() const { return absl::OkStatus(); }

  // What may change from one measurement to the next and says how much to believe it: clocks,
  // temperature, reasons for being slowed down.
  virtual std::map<std::string, std::string> Conditions() const { return {}; }
};

}  // namespace neuroshard
