// StatusPage: JSON as a page for a person.
#pragma once

#include <string>
#include <string_view>

namespace neuroshard {

// HTML of what the JSON text of an object says, in its order: values and short lists as a list of
// names, lists of objects as tables, objects as sections of their own. Columns and names without a
// value are left out. Fields that end in _bytes and _unix_ms are shown in their units, of those
// that end in digest the first 12 characters. Whatever the texts hold, they are shown as text: no
// markup of theirs, no script, and nothing from elsewhere. Another text than that of an object is
// shown as it is. O(text).
std::string StatusPage(std::string_view title, const std::string& json);

}  // namespace neuroshard
