#include "client/sweep/sweep_hash.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>

#include "client/sweep/canonical_text.h"

namespace neuroshard {

std::string SweepHash(const SweepConfig& config, std::string_view tables_csv) {
  std::string text = CanonicalText(config);
  text += '\n';
  text += tables_csv;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace neuroshard
