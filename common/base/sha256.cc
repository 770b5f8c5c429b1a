#include "common/base/sha256.h"

#include <fmt/ranges.h>
#include <openssl/sha.h>

namespace neuroshard {

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace neuroshard
