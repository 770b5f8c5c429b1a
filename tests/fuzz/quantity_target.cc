// Numbers with a unit.
#include <array>

#include "common/text/quantity.h"
#include "common/text/text_value.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadQuantity(std::string_view input) {
  constexpr std::array kFields = {"memory_bytes", "max_gib",  "link_bytes_per_s", "wait_us",
                                  "wait_ms",      "reload_s", "samples"};
  for (const char* const field : kFields) {
    const auto plain = PlainNumber(input, field);
    if (!plain.has_value()) continue;
    Promise(!PlainNumber(*plain, field).has_value(), "a plain number has no unit left");
    Promise(plain->size() <= 330, "a plain number is one of a double's");
  }
  TextValue value;
  value.kind = TextValue::Kind::kText;
  value.text = input;
  (void)RealOf(value);
  (void)IntegerOf<std::int64_t>(value);
  (void)IntegerOf<std::uint64_t>(value);
  (void)IntegerOf<int>(value);
}

std::vector<std::string> QuantitySeeds() {
  return {"80GiB",  "1.5 TB", "450GB/s",   "250us", "90s", "1.5h", "7d", "1_000_000",
          "1e308s", "-5ms",   "0x10",      "1e9",   ".5k", "nan",  "-",  "9223372036854775807",
          "1e-400", "infKiB", "1_0.0_1MB", ""};
}

}  // namespace

FuzzTarget QuantityTarget() { return {"quantity", ReadQuantity, QuantitySeeds}; }

}  // namespace neuroshard::fuzz
