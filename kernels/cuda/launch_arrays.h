// Arrays of tables that the launches of one step read, in one block of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {

// The arrays of tables of all launches, gathered on the host and copied at once.
class LaunchArrays {
 public:
  explicit LaunchArrays(GpuBuffer& buffer) : buffer_(buffer) {}

  // `*launch` is filled in by Copy and must live until then.
  template <typename Table>
  Status Add(const std::vector<Table>& tables, Batched<Table>* launch) {
    std::vector<std::int64_t> blocks;
    for (const Table& table : tables) blocks.push_back(BlocksOf(table));
    NS_ASSIGN_OR_RETURN(const std::vector<std::int32_t> first_block, FirstBlocks(blocks));
    const std::int64_t tables_place = Append(tables), blocks_place = Append(first_block);
    *launch = {.num_tables = static_cast<int>(tables.size()), .blocks = first_block.back()};
    placed_.push_back([=, this] {
      launch->tables = buffer_.at<Table>(tables_place);
      launch->first_block = buffer_.at<std::int32_t>(blocks_place);
    });
    return absl::OkStatus();
  }

  Status Copy(Gpu& gpu) {
    const auto size = static_cast<std::int64_t>(bytes_.size());
    NS_RETURN_IF_ERROR(buffer_.Reserve(size));
    for (const auto& place : placed_) place();
    return gpu.CopyIn(buffer_.at(0), bytes_.data(), size);
  }

 private:
  template <typename T>
  std::int64_t Append(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t place = (bytes_.size() + 255) / 256 * 256, size = values.size() * sizeof(T);
    bytes_.resize(place + size);
    if (size > 0) std::memcpy(bytes_.data() + place, values.data(), size);
    return static_cast<std::int64_t>(place);
  }

  GpuBuffer& buffer_;
  std::vector<std::byte> bytes_;
  std::vector<std::function<void()>> placed_;
};

}  // namespace neuroshard::cuda
