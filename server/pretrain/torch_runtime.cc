#include "server/pretrain/torch_runtime.h"

#include <ATen/Parallel.h>

#include <mutex>

#include "server/cost/neural/blas_threads.h"

namespace neuroshard {

void ConfigureTorchRuntime() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_threads(1);
    try {
      at::set_num_interop_threads(1);
    } catch (const c10::Error&) {
      // Refused once that pool runs; nothing here uses it.
    }
    UseOneBlasThread();  // libtorch does not pass its setting on
  });
}

}  // namespace neuroshard
