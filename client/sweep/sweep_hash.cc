#include "client/sweep/sweep_hash.h"

#include "client/sweep/canonical_text.h"
#include "common/base/sha256.h"

namespace neuroshard {

std::string SweepHash(const SweepConfig& config, std::string_view tables_csv) {
  std::string text = CanonicalText(config);
  text += '\n';
  text += tables_csv;
  return Sha256Hex(text);
}

}  // namespace neuroshard
