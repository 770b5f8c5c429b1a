// The word that somebody who misspelt it meant, and error messages with it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace neuroshard {

// Of `words`, the one that takes the fewest letters to be added, left out, exchanged or swapped
// with the next to make it from `text`: at most a third of its letters, and one in short words.
// Empty: none is so near. O(letters of text x letters of all words).
std::string SimilarWord(std::string_view text, std::span<const std::string_view> words);

// The end of an error message: "; did you mean plan?", or empty.
std::string DidYouMean(std::string_view text, std::span<const std::string_view> words);

// Of a text that is none of `words`: "must be one of sgd, adam, got "sdg"; did you mean sgd?".
std::string NotOneOf(std::string_view text, std::span<const std::string_view> words);

}  // namespace neuroshard
