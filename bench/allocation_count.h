// How often a thread asks for memory. Linking this replaces malloc and its family in the whole
// process, so that new, libtorch's tensors and BLAS buffers all count.
#pragma once

#include <cstdint>

namespace neuroshard {

// Calls of malloc, calloc, realloc and the aligned ones by this thread so far.
std::int64_t AllocationsOfThisThread();

}  // namespace neuroshard
