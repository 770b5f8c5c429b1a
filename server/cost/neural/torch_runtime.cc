#include "server/cost/neural/torch_runtime.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <mutex>

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
    // libtorch does not pass its setting on to OpenBLAS, and whether OpenBLAS is the installed BLAS
    // is known at run time only.
    using SetThreads = void (*)(int);
    if (void* symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
      reinterpret_cast<SetThreads>(symbol)(1);
    }
  });
}

}  // namespace neuroshard
