// Faults of a file that are found in two steps, text and values, on one list.
#pragma once

#include "common/base/status.h"

namespace neuroshard {

// `text_faults` are those of a text that does not fit its message, `value_faults` what decoding
// says of the part that did. Gives both, without what is said of a value only because it could not
// be read: of the field of a fault of the text, what is inside it, the list that it is in, and that
// list's other scalars. Either may be without violations; then it is the other, or `text_faults`.
Status FaultsOfTextAndValues(const Status& text_faults, const Status& value_faults);

}  // namespace neuroshard
