// Records of a validation in a profile store, for measuring drift and for training.
#pragma once

#include <cstdint>

#include "client/validate/validation.h"
#include "common/base/status.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// Writes the samples and records of `report` as sweeps named "validation", one of compute and one
// of communication, in one transaction; returns how many samples that are. Every validation is a
// sweep of its own, since its records are of another time; the same report again changes nothing.
// `config_text` says what was validated.
StatusOr<std::int64_t> RecordValidation(const ValidationReport& report,
                                        const std::string& config_text, ProfileStore& store);

}  // namespace neuroshard
