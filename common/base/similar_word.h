// The word that somebody who misspelt it meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace neuroshard {

// Of `words`, the one that takes the fewest letters to be added, left out, exchanged or swapped with
// the next to make it from `text`: at most a third of its letters, and one in short words. Empty:
// none is so near. O(letters of text x letters of all words).
std::string SimilarWord(std::string_view text, std::span<const std::string> words);

}  // namespace neuroshard
