#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace neuroshard::fuzz {
namespace {

using std::string_view_literals::operator""sv;

constexpr auto kTrippingWords =
    std::to_array<std::string_view>({"0",
                                     "-1",
                                     "1e309",
                                     "nan",
                                     ".inf",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "18446744073709551616",
                                     "1e18",
                                     "0.1e-400",
                                     "80GiB",
                                     "null",
                                     "true",
                                     "{}",
                                     "[]",
                                     "[[[[[[[[",
                                     "{a: &x [*x]}",
                                     "*",
                                     "&a",
                                     "<<: ",
                                     "\"",
                                     "\\u0000",
                                     "\\ud800",
                                     "'",
                                     "|\n ",
                                     "- ",
                                     "? ",
                                     ": ",
                                     "#",
                                     "%",
                                     "---\n",
                                     "...",
                                     "\t",
                                     "\r\n",
                                     "\0"sv,
                                     "\xff",
                                     "\xc3\x28",
                                     "\xef\xbb\xbf",
                                     "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                     "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                                     ",",
                                     "/",
                                     "::"});

std::size_t Position(const std::string& text, Random& random) {
  return static_cast<std::size_t>(random.Below(text.size() + 1));
}

void Change(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  const std::size_t at = Position(text, random);
  const auto length = static_cast<std::size_t>(1 + random.Below(random.Below(2) == 0 ? 8 : 200));
  switch (random.Below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random.Below(256));
      return;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.Below(8)));
      return;
    case 2:
      text.erase(at, length);
      return;
    case 3:
      text.insert(at, text.substr(Position(text, random), length));
      return;
    case 4:
      text.insert(at, kTrippingWords[random.Below(kTrippingWords.size())]);
      return;
    case 5: {  // in place of the next number
      const std::size_t digit = text.find_first_of("0123456789", at);
      if (digit == std::string::npos) return;
      const std::size_t end = text.find_first_not_of("0123456789", digit);
      text.replace(digit, std::min(end, text.size()) - digit, kTrippingWords[random.Below(11)]);
      return;
    }
    case 6: {
      const std::string& other = seeds[random.Below(seeds.size())];
      text.insert(at, other.substr(Position(other, random), length));
      return;
    }
    default:
      if (random.Below(4) == 0) text.resize(at);
      return;
  }
}

}  // namespace

std::string Mutated(const std::vector<std::string>& seeds, Random& random) {
  std::string text = seeds[random.Below(seeds.size())];
  const std::uint64_t changes = 1 + random.Below(8);
  for (std::uint64_t i = 0; i < changes; ++i) Change(text, seeds, random);
  return text;
}

}  // namespace neuroshard::fuzz
