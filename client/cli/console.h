// Output of a command: results go to `out`, everything else for a person to `err`.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <string>

#include "client/cli/text_table.h"
#include "common/base/status.h"
#include "common/codec/message_text.h"

namespace neuroshard {

// The options --format and --wide of a command that answers.
struct OutputOptions {
  std::string format = "table";
  Detail detail = Detail::kShort;

  bool json() const { return format == "json"; }
};

// The two streams of a command, and whether a person watches them. The streams outlive it.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  // The width of `out`, where it is a terminal.
  std::size_t columns = kTextColumns;
  bool colour = false;

  TextStyle Style(const OutputOptions& output) const { return {output.detail, columns, colour}; }
};

// Prints a failure, each violation on a line of its own, and returns kExitFailure.
int ReportFailure(const Console& console, const Status& status);

// Reports each status that is not OK; whether there is one.
bool ReportFailures(const Console& console, std::initializer_list<Status> statuses);

// Whether a result whose file is `path` goes to `out`: none is named, or "-".
bool IsStandardOutput(const std::string& path);

// Whether WriteResult could write to `path` now, for whoever has long work to do first.
Status CheckResultWritable(const std::string& path);

// Writes a command's result to `out`, or to the file when one is named: the whole of it or nothing.
Status WriteText(const Console& console, const std::string& path, const std::string& text);
// WriteText that reports a failure and returns the exit code.
int WriteResult(const Console& console, const std::string& path, const std::string& text);

// Writes what a command answers: JSON of the message where that is asked for, else what `as_text`
// makes of it for a person.
template <typename Answer, typename AsText>
int WriteAnswer(const Console& console, const OutputOptions& output, const Answer& answer,
                const AsText& as_text, const std::string& path = "") {
  return WriteResult(
      console, path,
      output.json() ? MessageToJson(answer) + '\n' : as_text(answer, console.Style(output)));
}

}  // namespace neuroshard
