// Text for people, in lines that a terminal shows whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace neuroshard {

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
