#include "client/cli/console.h"

#include <vector>

#include "common/base/violations.h"
#include "common/cli/exit_code.h"
#include "common/codec/text_file.h"

namespace neuroshard {

int ReportFailure(const Console& console, const Status& status) {
  const std::vector<Violation> violations = Violations::FromStatus(status);
  // Only malformed input is explained by its fields alone; a request that has no plan also has a
  // reason, and its message lists the fields.
  if (violations.empty() || status.code() != absl::StatusCode::kInvalidArgument) {
    console.err << "error: " << Message(status) << '\n';
  } else {
    // A long list is cut where it was made or sent (violations.h, status_mapping.h).
    const std::size_t listed = violations.size() - (violations.back().field == "..." ? 1 : 0);
    const bool cut = listed < violations.size() || listed >= Violations::kMaxKept;
    console.err << "error: " << (cut ? "at least " : "") << Counted(listed, "fault")
                << " in the input\n";
    for (const Violation& violation : violations) {
      console.err << "  " << violation.field << ": " << violation.description << '\n';
    }
  }
  return kExitFailure;
}

bool ReportFailures(const Console& console, std::initializer_list<Status> statuses) {
  bool any = false;
  for (const Status& status : statuses) {
    if (status.ok()) continue;
    ReportFailure(console, status);
    any = true;
  }
  return any;
}

bool IsStandardOutput(const std::string& path) { return path.empty() || path == "-"; }

Status CheckResultWritable(const std::string& path) {
  return IsStandardOutput(path) ? absl::OkStatus() : CheckTextFileWritable(path);
}

Status WriteText(const Console& console, const std::string& path, const std::string& text) {
  if (!IsStandardOutput(path)) {
    NS_RETURN_IF_ERROR(WriteTextFile(path, text));
    console.err << "written to " << path << '\n';
    return absl::OkStatus();
  }
  console.out << text;
  console.out.flush();
  return console.out.good() ? absl::OkStatus()
                            : absl::DataLossError("standard output cannot be written");
}

int WriteResult(const Console& console, const std::string& path, const std::string& text) {
  const Status written = WriteText(console, path, text);
  return written.ok() ? kExitSuccess : ReportFailure(console, written);
}

}  // namespace neuroshard
