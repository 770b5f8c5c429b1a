// How the BLAS runs in our processes.
#pragma once

namespace neuroshard {

// One thread in OpenBLAS, if that is the installed BLAS, for the whole process. Our matrices are
// too small to share out, the caller's threads are the parallelism, and a sum split over threads
// would depend on the machine's cores. Any thread, any time.
void UseOneBlasThread();

}  // namespace neuroshard
