#include "server/pretrain/fit/blas_threads.h"

#include <dlfcn.h>

namespace neuroshard {

void UseOneBlasThread() {
  // Which BLAS is installed is known at run time only.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<SetThreads>(symbol)(1);
  }
}

}  // namespace neuroshard
