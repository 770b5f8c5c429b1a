// The inner loops of embedding lookups, compiled for several instruction sets; the best one that
// the CPU has is chosen at run time. Buffers of floats that are read here must be readable up to
// MemoryArena::kAlignmentBytes past their end; nothing is written past the end. No function
// allocates, blocks or fails. Sums are formed in the order of the keys, in blocks of 512: the
// result depends on the vector length of the instruction set in nothing but the order inside the
// sum of a row's squares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// A list of (row, weight) over rows of `rows`: entry i is row keys[i] & key_mask, weighted by
// key_weights[i] or by 1.
struct RowList {
  const float* rows = nullptr;
  std::int64_t stride = 0;  // floats from one row to the next
  const std::uint64_t* keys = nullptr;
  std::uint64_t key_mask = ~std::uint64_t{0};
  const float* key_weights = nullptr;  // may be null
  std::int64_t num_keys = 0;
};

// output row b = sum of the list's entries [offsets[b], offsets[b + 1]), divided by their number if
// `mean`; zeros when there are none. Without offsets nothing is pooled: output row i = row keys[i],
// for each of the list's keys, which have no weights then.
struct PoolArguments {
  RowList list;
  std::int64_t cols = 0;
  const std::int64_t* offsets = nullptr;  // batch_size + 1; may be null
  std::int64_t batch_size = 0;            // of what is pooled
  bool mean = false;
  float* output = nullptr;
  std::int64_t output_stride = 0;
};
void PoolRows(const PoolArguments& arguments);

// Keys are sorted; those with equal keys[i] >> row_shift are the occurrences of that table row.
// Each distinct row is updated once with the sum of its occurrences' gradients, by the rules of
// EmbeddingOp::Backward (kernels/api/embedding_op.h).
struct UpdateArguments {
  RowList gradients;
  int row_shift = 0;
  std::int64_t cols = 0;
  float* weights = nullptr;  // row r starts at weights + r * cols
  Optimizer optimizer = Optimizer::kSgd;
  // As StateOfRow says, row after row; null where it has none. The state of weights row r is its
  // row slot_rows[r] for r < num_slots (rows of a table in slots of a cache), r - num_slots
  // otherwise.
  float* momentum1 = nullptr;
  float* momentum2 = nullptr;
  const std::int64_t* slot_rows = nullptr;
  std::int64_t num_slots = 0;
  float learning_rate = 0;
  float epsilon = 0;
  float beta1 = 0;
  float beta2 = 0;
  float correction1 = 1;  // 1 - beta1^t
  float correction2 = 1;
  float eta = 0;
  float momentum = 0;
  // Room for UpdateScratchFloats.
  float* scratch = nullptr;
};
// None for SGD, for row-wise Adagrad one a key, for the others one a column and a vector more.
std::int64_t UpdateScratchFloats(Optimizer optimizer, std::int64_t num_keys, std::int64_t cols);
void UpdateRows(const UpdateArguments& arguments);

// out[i] = block[(phase + i) % period] for i in [0, count), past the caches. Exception to the rule
// above: writes up to the next multiple of MemoryArena::kAlignmentBytes. `out` is aligned to that;
// block holds period + 16 values that continue periodically; 16 <= period, 0 <= phase < period.
void FillPeriodic(float* out, std::int64_t count, const float* block, std::int64_t period,
                  std::int64_t phase);

// Reads one word of every cache line and returns their sum.
std::uint64_t ReadEveryLine(const std::uint64_t* words, std::int64_t num_words);

// The instruction set in use: "AVX3", "AVX2", ...
std::string KernelInstructionSet();

// The version of the SIMD library, Highway.
std::string KernelLibrary();

// Highway's bits of all instruction sets that are compiled in and supported here; for
// hwy::SetSupportedTargetsForTest.
std::vector<std::int64_t> SupportedInstructionSets();

}  // namespace neuroshard
