// Kinds of failed measurements.
#pragma once

#include "common/base/status.h"

namespace neuroshard {

// Kinds of failures by what the sweep does about them.
enum class FailureKind {
  kConnection,  // the worker, its stream or its group is broken: the sample can be measured
                // elsewhere or later
  kBusy,        // somebody else has the device: wait
  kSample,      // the worker refuses this sample: no worker will take it
};

inline FailureKind ClassifyFailure(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return FailureKind::kBusy;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return FailureKind::kSample;
    default:
      return FailureKind::kConnection;
  }
}

}  // namespace neuroshard
