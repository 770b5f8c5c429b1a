// Output of a command: results go to `out`, everything else for a person to `err`.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <string>

#include "client/cli/text_table.h"
#include "common/base/status.h"

namespace neuroshard {

// The two streams of a command, and whether a person watches them. The streams outlive it.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  // Of `out`, where it is a terminal.
  std::size_t columns = kTextColumns;
  bool colour = false;

  TextStyle Style(Detail detail) const { return {detail, columns, colour}; }
};

// Prints a failure, each violation on a line of its own, and returns kExitFailure.
int ReportFailure(const Console& console, const Status& status);

// The same for each of them that is not OK.
int ReportFailures(const Console& console, std::initializer_list<Status> statuses);

// Whether a result whose file is `path` goes to `out`: none is named, or "-".
bool IsStandardOutput(const std::string& path);

// Whether WriteResult could write to `path` now, for whoever has long work to do first.
Status CheckResultWritable(const std::string& path);

// Writes a command's result to `out`, or to the file when one is named: the whole of it or nothing.
// Returns the exit code.
int WriteResult(const Console& console, const std::string& path, const std::string& text);

}  // namespace neuroshard
