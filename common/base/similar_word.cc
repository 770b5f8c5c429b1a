#include "common/base/similar_word.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

// Optimal string alignment distance.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> of(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        of[i][j] = i + j;
        continue;
      }
      const std::size_t exchange = of[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      of[i][j] = std::min({of[i - 1][j] + 1, of[i][j - 1] + 1, exchange});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
      }
    }
  }
  return of[a.size()][b.size()];
}

}  // namespace

std::string SimilarWord(std::string_view text, std::span<const std::string_view> words) {
  constexpr std::size_t kLongest = 64;
  std::string nearest;
  std::size_t least = kLongest;
  if (text.size() > kLongest) return nearest;
  for (const std::string_view word : words) {
    const std::size_t distance = Distance(text, word);
    if (distance >= least || distance > std::max<std::size_t>(1, word.size() / 3)) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

std::string DidYouMean(std::string_view text, std::span<const std::string_view> words) {
  const std::string similar = SimilarWord(text, words);
  return similar.empty() ? "" : fmt::format("; did you mean {}?", similar);
}

std::string NotOneOf(std::string_view text, std::span<const std::string_view> words) {
  return fmt::format("must be one of {}, got {}{}", fmt::join(words, ", "), Quoted(text),
                     DidYouMean(text, words));
}

}  // namespace neuroshard
