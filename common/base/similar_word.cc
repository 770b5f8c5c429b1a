#include "common/base/similar_word.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kLongest = 64;

struct Synonym {
  std::string_view written;
  std::string_view meant;
  std::string_view difference;  // what else the word means; empty: nothing
};

constexpr Synonym kSynonyms[] = {
#include "proto/synonyms.inc"
};

constexpr bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

// What is left of a spelling: without case and signs, and of a path its end ("torch.float32",
// "ShardingType.COLUMN_WISE").
std::string Plain(std::string_view text) {
  std::string plain = Lower(text.substr(text.rfind('.') + 1));
  std::erase_if(plain, [](char c) { return !IsLetterOrDigit(c); });
  return plain;
}

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

std::string_view Nearest(std::string_view text, std::span<const std::string_view> words) {
  const std::string lower = Lower(text);
  std::string_view nearest;
  std::size_t least = kLongest;
  for (const std::string_view word : words) {
    const std::size_t distance = Distance(lower, Lower(word));
    if (distance >= least || distance > std::max<std::size_t>(1, word.size() / 3)) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

// The parts of a word that signs separate.
std::vector<std::string> PartsOf(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : Lower(text)) {
    if (IsLetterOrDigit(c)) {
      parts.back() += c;
    } else if (!parts.back().empty()) {
      parts.emplace_back();
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

// The first word that begins or ends with `text` and has no more parts besides.
std::string_view Completed(std::string_view text, std::span<const std::string_view> words) {
  const std::vector<std::string> given = PartsOf(text);
  for (const std::string_view word : words) {
    const std::vector<std::string> parts = PartsOf(word);
    if (given.empty() || given.size() > parts.size() || parts.size() > 2 * given.size()) continue;
    if (std::equal(given.begin(), given.end(), parts.begin()) ||
        std::equal(given.rbegin(), given.rend(), parts.rbegin())) {
      return word;
    }
  }
  return {};
}

// A word of requests, or nothing in both.
struct Meaning {
  std::string_view word;
  std::string_view difference;
};

Meaning MeaningOf(std::string_view text, std::span<const std::string_view> words) {
  if (text.size() > kLongest) return {};
  const std::string plain = Plain(text);
  for (const std::string_view word : words) {
    if (!plain.empty() && Plain(word) == plain) return {word, {}};
  }
  for (const Synonym& synonym : kSynonyms) {
    if (Plain(synonym.written) == plain && std::ranges::find(words, synonym.meant) != words.end()) {
      return {synonym.meant, synonym.difference};
    }
  }
  const std::string_view nearest = Nearest(text, words);
  return {nearest.empty() ? Completed(text, words) : nearest, {}};
}

}  // namespace

std::string SimilarWord(std::string_view text, std::span<const std::string_view> words) {
  return std::string(MeaningOf(text, words).word);
}

std::string DidYouMean(std::string_view text, std::span<const std::string_view> words) {
  const auto [word, difference] = MeaningOf(text, words);
  if (word.empty()) return "";
  return difference.empty() ? fmt::format("; did you mean {}?", word)
                            : fmt::format("; did you mean {} ({})?", word, difference);
}

std::string NotOneOf(std::string_view text, std::span<const std::string_view> words) {
  return fmt::format("must be one of {}, got {}{}", fmt::join(words, ", "), Quoted(text),
                     DidYouMean(text, words));
}

}  // namespace neuroshard
