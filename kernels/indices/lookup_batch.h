// The ids that one table is looked up with in one batch.
#pragma once

#include <cstdint>
#include <vector>

namespace neuroshard {

// In CSR form: sample b owns ids[offsets[b] .. offsets[b + 1]).
struct LookupBatch {
  std::vector<std::int64_t> ids;      // each in [0, rows)
  std::vector<std::int64_t> offsets;  // batch_size + 1 entries, the first 0
  std::vector<float> weights;         // one an id, or empty for unweighted
};

}  // namespace neuroshard
