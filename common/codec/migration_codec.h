// Migration <-> its message.
#pragma once

#include <vector>

#include "common/base/violations.h"
#include "common/domain/constraints.h"
#include "common/domain/table.h"
#include "neuroshard/v1/migration.pb.h"

namespace neuroshard {

// Field paths start with "migration.", those of the plan with "migration.previous.". The plan may
// be for other tables and another topology; it has tables, none of them twice, each laid out in its
// type (CheckTilings) and, where it says so, of the kind that it has in the request. Entries that
// stand for one of `tables` (TablesOf) get its module and name.
Migration DecodeMigration(const v1::Migration& message, const std::vector<Table>& tables,
                          Violations& violations);

// DecodeMigration gives the same migration again.
v1::Migration EncodeMigration(const Migration& migration);

}  // namespace neuroshard
