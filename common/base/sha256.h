// SHA-256 of a text.
#pragma once

#include <string>
#include <string_view>

namespace neuroshard {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace neuroshard
