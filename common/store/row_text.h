// Values that a row keeps as JSON text: arrays, series and environments. Doubles come back bit for
// bit.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// The text of an environment without measured_at_unix_ms, which differs in every record and has a
// column of its own: equal environments give equal text. T: one of those in row_text.cc.
template <typename T>
std::string ToRowText(const T& value);

// DATA_LOSS when the text is not what ToRowText writes.
template <typename T>
StatusOr<T> FromRowText(const std::string& text);

}  // namespace neuroshard
