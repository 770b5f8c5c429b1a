// A cost model as people name it: NAME, or NAME/VERSION.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// "NAME" (the version that serves: 0) or "NAME/VERSION". INVALID_ARGUMENT says what is wrong.
StatusOr<CostModelRef> ParseModelReference(const std::string& text);

// The inverse.
std::string ModelReferenceText(const CostModelRef& model);

v1::CostModelRef EncodeModelReference(const CostModelRef& model);

}  // namespace neuroshard
