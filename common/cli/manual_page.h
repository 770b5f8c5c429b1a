// The manual page of a program, from the description of its command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace neuroshard {

// In man(7)'s macros, section 1: every command and option that --help shows, the environment and
// the exit codes. The same text every time: it has a version and no date.
std::string ManualPage(const CLI::App& app, const std::string& version);

}  // namespace neuroshard
