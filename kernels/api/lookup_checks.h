// Checks of specs and inputs that every embedding device makes before it looks at its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard {

// INVALID_ARGUMENT names what is out of range (batch size, rows, cols, the optimizer's numbers) or
// not among the abilities.
Status CheckSpec(const EmbeddingOpSpec& spec, const EmbeddingAbilities& abilities);

// INVALID_ARGUMENT when there is not one batch a table, or names the first batch that is not well
// formed ("inputs[3]: ...").
Status CheckInputs(const EmbeddingOpSpec& spec, const std::vector<LookupBatch>& inputs);

// The same of plans ("inputs[3]: ...").
Status CheckPlans(const EmbeddingOpSpec& spec, const std::vector<LookupPlan>& plans);

}  // namespace neuroshard
