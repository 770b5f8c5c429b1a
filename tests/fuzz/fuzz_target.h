// A function of ours that reads foreign bytes, as fuzzers and replays call it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace neuroshard::fuzz {

// `run` takes any bytes, returns, and keeps nothing. It ends the process where a promise of the
// code is broken (Promise); memory errors and undefined behaviour are for the sanitizers to see.
struct FuzzTarget {
  std::string_view name;
  void (*run)(std::string_view input);
  std::vector<std::string> (*seeds)();  // inputs to start from
};

// One a file of this folder, <name>_target.cc.
FuzzTarget RequestTextTarget();
FuzzTarget PlanTextTarget();
FuzzTarget TableFilesTarget();
FuzzTarget ManifestTarget();
FuzzTarget TensorFileTarget();
FuzzTarget SweepConfigTarget();
FuzzTarget QuantityTarget();
FuzzTarget PlanRequestTarget();
FuzzTarget EvaluationTarget();
FuzzTarget PredictionTarget();
FuzzTarget MeasurementTarget();
FuzzTarget CostDataTarget();
FuzzTarget StoreTarget();
FuzzTarget AddressTarget();

// All of them.
std::vector<FuzzTarget> AllFuzzTargets();

// Ends the process, saying `what` was promised, unless it holds.
void Promise(bool holds, std::string_view what);

// The contents of files below the repository's root that end in `suffix`: `path` is a file or a
// folder, of which all files below count. In the order of their paths. Ends the process when there
// are none.
std::vector<std::string> SeedsFrom(std::string_view path, std::string_view suffix);
// A file of this process with these bytes, for readers of files; the same one at every call.
std::string FileWith(std::string_view bytes);
// Both.
std::vector<std::string> Joined(std::vector<std::string> seeds,
                                const std::vector<std::string>& more);

}  // namespace neuroshard::fuzz
