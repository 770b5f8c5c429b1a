#include "common/base/random_token.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <sys/random.h>

#include <array>

namespace neuroshard {

StatusOr<std::string> RandomToken() {
  std::array<unsigned char, 16> bytes{};
  // So few bytes come whole, or not at all.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Internal("the system has no random numbers to give");
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace neuroshard
