// How libtorch and its BLAS run in our processes.
#pragma once

namespace neuroshard {

// One thread in libtorch and in its BLAS, for the whole process; the first call counts. Our
// matrices are too small to share out, and a sum split over threads would depend on the machine's
// cores. Any thread, any time.
void ConfigureTorchRuntime();

}  // namespace neuroshard
