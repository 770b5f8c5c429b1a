// SearchOptions <-> their message.
#pragma once

#include "common/base/violations.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/search.pb.h"

namespace neuroshard {

// Field paths start with "search.". The strategy stays text; the search checks the name.
SearchOptions DecodeSearchOptions(const v1::SearchOptions& message, Violations& violations);

// DecodeSearchOptions gives the same options again.
v1::SearchOptions EncodeSearchOptions(const SearchOptions& options);

}  // namespace neuroshard
