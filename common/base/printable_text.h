// Text that is about to be shown: text from files in messages, logs and answers, all of which must
// be UTF-8, and text for people, in lines that a terminal shows whole.
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

// What tables, answers and --help fit in.
inline constexpr std::size_t kTextColumns = 80;

// `text` with line ends in place of spaces so that no line is longer than `columns` characters;
// longer words stay whole. Lines that this makes begin with `indent` spaces; line ends of `text`
// stay. The first line begins behind `used` characters. Characters are Unicode code points.
std::string Wrapped(std::string_view text, std::size_t columns, std::size_t indent,
                    std::size_t used = 0);

// Characters of `text`.
std::size_t ColumnsOf(std::string_view text);

}  // namespace neuroshard
