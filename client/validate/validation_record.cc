#include "client/validate/validation_record.h"

namespace neuroshard {

StatusOr<std::int64_t> RecordValidation(const ValidationReport& report,
                                        const std::string& config_text, ProfileStore& store) {
  const SweepInfo info{"validation", "validation-" + report.run_id, config_text};
  NS_RETURN_IF_ERROR(store.RecordMeasured(info, report.compute, report.comm));
  return static_cast<std::int64_t>(report.compute.size() + report.comm.size());
}

}  // namespace neuroshard
