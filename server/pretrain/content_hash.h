// Identity of imported data by its content.
#pragma once

#include <string>
#include <string_view>

namespace neuroshard {

// SHA-256 as 64 lower-case hexadecimal digits.
std::string ContentHash(std::string_view bytes);

}  // namespace neuroshard
