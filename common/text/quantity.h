// Numbers with a unit, as people write them: 80GiB, 450GB/s, 90s, 1_000_000.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace neuroshard {

// `text` as a plain number in the unit that the name of its field ends in: sizes for _bytes
// ("80GiB", "1.5 TB"; powers of 1024 and of 1000; a fraction of a byte is rounded) and _gib, rates
// for _bytes_per_s ("450GB/s"), durations for _us, _ms and _s ("250us", "90s", "1.5h", "7d"). In
// every field `_` may stand between digits. nullopt: it is a plain number as it is, or no such
// thing.
std::optional<std::string> PlainNumber(std::string_view text, std::string_view field);

// What error messages add of a field whose value may have a unit: " (or with a unit: 80GiB, 80GB)".
std::string_view UnitHint(std::string_view field);

}  // namespace neuroshard
