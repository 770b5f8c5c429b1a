// Text from files that is about to be shown: in messages, logs and answers, all of which must be
// UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace neuroshard {

// Well-formed UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

// `text` with every control character and every byte that belongs to no UTF-8 character replaced by
// '?', and cut with "..." after about `max_bytes`, never within a character. Always UTF-8 of one
// line.
std::string Printable(std::string_view text, std::size_t max_bytes);

// `text` in double quotes for an error message: control characters escaped, what is not UTF-8
// replaced, cut (at a character) to about 60 bytes.
std::string Quoted(std::string_view text);

}  // namespace neuroshard
