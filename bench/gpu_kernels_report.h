// What gpu_kernels_bench measured, as tables in Markdown; pure.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

namespace neuroshard {

// Of the document that gpu_kernels_bench writes: the bandwidth of copying, every case as a ratio to
// it, and what the kernels should reach on an H200 beside what they do.
void PrintGpuKernelTables(const nlohmann::ordered_json& result, std::ostream& out);

}  // namespace neuroshard
