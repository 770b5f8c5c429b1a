// Runs the threads of a sweep while this one keeps the display and the stop signal.
#pragma once

#include <functional>
#include <vector>

#include "client/sweep/progress_display.h"
#include "common/base/stop_signal.h"

namespace neuroshard {

// Calls every loop in a thread of its own and returns when all have returned. Meanwhile ticks
// `display`, and calls `on_stop` once when `stop` asks for it; the loops must then return soon.
// True when it was stopped.
bool RunMonitored(const std::vector<std::function<void()>>& loops, const StopSignal& stop,
                  ProgressDisplay& display, const std::function<void()>& on_stop);

}  // namespace neuroshard
