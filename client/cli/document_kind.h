// What a file is that was given where something else belongs.
#pragma once

#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

// What a command wants.
enum class DocumentKind { kRequest, kPlan, kWhatIf };

// INVALID_ARGUMENT that says what `text` is ("this is a plan; a request is wanted here"), when it
// is recognised as anything but `wanted`; OK otherwise. For texts that could not be read as
// `wanted`.
Status OtherDocument(std::string_view text, DocumentKind wanted);

}  // namespace neuroshard
