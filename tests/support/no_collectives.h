// For what runs one device: collectives that there are none of.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernels/api/collective.h"

namespace neuroshard::testing {

class NoCollectives final : public CollectiveBackend {
 public:
  std::string name() const override { return "none"; }
  std::map<std::string, std::string> details() const override { return {}; }
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec&) const override {
    return FailedPrecondition("no collectives");
  }
};

}  // namespace neuroshard::testing
