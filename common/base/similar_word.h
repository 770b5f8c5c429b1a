// The word that somebody who misspelt it, or knows it by another project's name, meant, and error
// messages with it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace neuroshard {

// The word of `words` that `text` may have meant. In this order: the one that is spelt so but for
// case and signs; the meaning of `text` in proto/synonyms.inc; the one that takes the fewest
// letters to be added, left out, exchanged or swapped with the next to make it from `text`, at most
// a third of its letters, and one in short words; the first that begins or ends with `text` and has
// at most as much besides. Empty: none. O(letters of text x letters of all words).
std::string SimilarWord(std::string_view text, std::span<const std::string_view> words);

// The end of an error message: "; did you mean plan?", or empty. Where a synonym differs in more
// than the name: "; did you mean global_batch_size (of all ranks together)?".
std::string DidYouMean(std::string_view text, std::span<const std::string_view> words);

// The description of a text that is none of `words`: "must be one of sgd, adam, got "sdg"; did you
// mean sgd?".
std::string NotOneOf(std::string_view text, std::span<const std::string_view> words);

}  // namespace neuroshard
