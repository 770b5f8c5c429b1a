// --format of the commands that print a table or one JSON document.
#pragma once

#include <string>

#include "client/cli/text_table.h"

namespace CLI {
class App;
}

namespace neuroshard {

// `format` is "table" unless the command line says "json"; it must outlive the parse.
void AddFormatOption(CLI::App& command, std::string& format,
                     const std::string& description = "Form of the answer");

// --wide; `detail` must outlive the parse.
void AddWideOption(CLI::App& command, Detail& detail);

}  // namespace neuroshard
