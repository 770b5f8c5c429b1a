// Warnings about tables of a previous plan that are not the request's, and so are not kept.
#pragma once

#include <string>
#include <vector>

#include "common/domain/plan_request.h"

namespace neuroshard {

// One line for tables that the previous plan has in another size: they count as new.
// One where it has tables, and none of the request's. Nothing without a migration.
std::vector<std::string> MigrationWarnings(const PlanRequest& request);

}  // namespace neuroshard
