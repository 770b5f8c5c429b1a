#include "kernels/cpu/memory_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/base/bytes.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

TEST(MemoryArenaTest, BlocksAreAlignedPaddedAndReused) {
  auto arena = MemoryArena::Create(kMiB).value();
  std::byte* first = arena->Take(100);
  std::byte* second = arena->Take(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % MemoryArena::kAlignmentBytes, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % MemoryArena::kAlignmentBytes, 0U);
  EXPECT_GE(second - first, 100 + MemoryArena::kAlignmentBytes);
  std::memset(first, 1, 100);
  arena->Reset();
  EXPECT_EQ(arena->Take(50), first);
}

TEST(MemoryArenaTest, WhatDoesNotFitIsRefusedWithBothSizes) {
  auto arena = MemoryArena::Create(kMiB).value();
  EXPECT_TRUE(arena->CheckFits(kMiB).ok());
  arena->Take(kMiB / 2);
  const Status status = arena->CheckFits(kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("1048576 bytes"));
  arena->Reset();
  EXPECT_TRUE(arena->CheckFits(kMiB).ok());
}

TEST(MemoryArenaTest, MoreThanTheMachineHasIsRefusedBeforeItIsTouched) {
  auto arena = MemoryArena::Create(3 * MachineMemoryBytes());
  if (!arena.ok()) GTEST_SKIP() << "the system does not overcommit: " << arena.status();
  EXPECT_EQ((*arena)->CheckFits(2 * MachineMemoryBytes()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(MemoryArenaTest, WhatIsAllocatedElsewhereCannotUseResidentPages) {
  auto arena = MemoryArena::Create(3 * MachineMemoryBytes());
  if (!arena.ok()) GTEST_SKIP() << "the system does not overcommit: " << arena.status();
  (*arena)->Take(2 * MachineMemoryBytes());  // as if a larger op had been here before
  (*arena)->Reset();
  EXPECT_TRUE((*arena)->CheckFits(MachineMemoryBytes()).ok());
  EXPECT_EQ((*arena)->CheckFits(0, MachineMemoryBytes()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*arena)->CheckFits(kMiB, MachineMemoryBytes()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*arena)->CheckFits(MachineMemoryBytes(), kMiB).ok());
  EXPECT_EQ((*arena)->NewPagesBytes(MachineMemoryBytes()), 0);
  EXPECT_EQ((*arena)->NewPagesBytes(2 * MachineMemoryBytes() + 5 * kMiB),
            5 * kMiB - MemoryArena::kAlignmentBytes);
}

TEST(MemoryArenaTest, ImpossibleCapacitiesAreStatuses) {
  EXPECT_EQ(MemoryArena::Create(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MemoryArena::Create(std::int64_t{1} << 62).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace neuroshard
