// configs/devices.yaml and configs/fabrics/*.yaml as text; CMakeLists.txt writes the .cc.
#pragma once

#include <span>
#include <string_view>

namespace neuroshard {

extern const std::string_view kDevicesText;
extern const std::span<const std::string_view> kFabricTexts;

}  // namespace neuroshard
