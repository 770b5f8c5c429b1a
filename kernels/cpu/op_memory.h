// Memory that an embedding op takes before its first lookup.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cpu/memory_arena.h"

namespace neuroshard {

// Adds the arena block of a x b floats. A sum that is beyond any machine stays there.
void AddBlock(std::int64_t a, std::int64_t b, std::int64_t& bytes);

// Whether optimizer state of so many values a row is in the arena.
bool IsInArena(const EmbeddingTableSpec& table, std::int64_t values_of_row);

// RESOURCE_EXHAUSTED, quoting both sizes, unless tables, optimizer state, outputs and gradients fit
// the arena, and with caches and tables in host memory what the machine can still give. Nothing is
// touched.
Status CheckOpFits(const MemoryArena& arena, const EmbeddingOpSpec& spec);

}  // namespace neuroshard
