#include "server/models/model_repository.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>

#include "common/base/failure_reason.h"
#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/codec/fingerprint.h"
#include "common/devices/device_table.h"
#include "server/networks/model_directory.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

// A model has a handful of files; a fingerprint of more would cost every reload.
constexpr std::size_t kMaxFiles = 10'000;
// Between the two readings that a version without a list of its files takes.
constexpr std::chrono::milliseconds kSettleTimeAtStart{500};
// Refusals go into logs and answers: bounded, and UTF-8 whatever the names and contents of files.
constexpr std::size_t kMaxReasonBytes = 4096;
constexpr std::size_t kMaxDirectoryBytes = 512;

// Names of the folders in `directory`, sorted; links to folders count.
StatusOr<std::vector<std::string>> Folders(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    std::error_code vanished;
    if (!IsPassedOver(name) && it->is_directory(vanished)) names.push_back(std::move(name));
  }
  if (error) {
    const std::string text = fmt::format("{}: {}", directory.string(), error.message());
    const bool absent =
        error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return absent ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  std::ranges::sort(names);
  return names;
}

void AppendStat(const fs::path& path, std::string& fingerprint) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    fingerprint += fmt::format("{}|?\n", path.string());
    return;
  }
  fingerprint += fmt::format("{}|{}|{}|{}.{}|{}.{}\n", path.string(), status.st_ino, status.st_size,
                             status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                             status.st_ctim.tv_nsec);
}

// Changes when a file appears, vanishes or is written to.
std::string Fingerprint(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (; !error && it != fs::recursive_directory_iterator() && files.size() < kMaxFiles;
       it.increment(error)) {
    std::error_code vanished;
    if (!it->is_directory(vanished)) files.push_back(it->path());
  }
  std::ranges::sort(files);
  std::string fingerprint;
  for (const fs::path& file : files) AppendStat(file, fingerprint);
  return fingerprint;
}

// Whether only a change of the files can help.
bool IsFaultOfFiles(const Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kNotFound;
}

std::string DescribeAvailable(const std::vector<std::shared_ptr<const CostModel>>& models,
                              std::string_view name) {
  if (models.empty()) return "no cost model is loaded";
  std::string text;
  std::vector<std::string_view> names;
  for (const auto& model : models) {
    const CostModelInfo& info = model->info();
    text +=
        fmt::format("{}{} version {}", text.empty() ? "there is " : ", ", info.name, info.version);
    names.push_back(info.name);
  }
  return std::ranges::find(names, name) == names.end() ? text + DidYouMean(name, names) : text;
}

std::string KeyOf(const CostModel& model) {
  return fmt::format("{}/{}", model.info().name, model.info().version);
}

// Whether exchanges between ranks were measured too, not priced by published figures or not at all.
bool MeasuredComm(const CostModelInfo& info) {
  return info.coverage.comm_fabric.empty() && info.coverage.prices_comm();
}

}  // namespace

double PlaceInRollout(const PlanRequest& request, const CostModelRef& version) {
  constexpr std::size_t kDigits = 13;  // what a double holds exactly
  const std::string fingerprint =
      RequestFingerprint(request, version.name, version.version, {}, version.digest);
  std::uint64_t place = 0;
  std::from_chars(fingerprint.data(), fingerprint.data() + kDigits, place, 16);
  return std::ldexp(static_cast<double>(place), -4 * static_cast<int>(kDigits));
}

StatusOr<CostModelRef> ParseDefaultModel(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return CostModelRef{text, 0};
  const auto version = VersionFromName(text.substr(slash + 1));
  if (slash == 0 || !version) {
    return InvalidArgument("must be NAME or NAME/VERSION with a version of at least 1, got {}",
                           Quoted(text));
  }
  return CostModelRef{text.substr(0, slash), *version};
}

int ModelSnapshot::ServingVersion(const std::string& name) const {
  if (const auto channel = channels_.find(name); channel != channels_.end()) {
    return channel->second.version;
  }
  int newest = 0;
  for (const auto& model : models_) {
    if (model->info().name == name) newest = std::max(newest, model->info().version);
  }
  return newest;
}

int ModelSnapshot::ServingVersion(const std::string& name, const PlanRequest& request) const {
  const auto channel = channels_.find(name);
  if (channel != channels_.end() && channel->second.rollout && !request.tables.empty()) {
    const StagedVersion& staged = *channel->second.rollout;
    const auto model = Find({name, staged.version});
    if (model.ok() &&
        PlaceInRollout(request, {name, staged.version, (*model)->info().digest}) < staged.share) {
      return staged.version;
    }
  }
  return ServingVersion(name);
}

std::vector<std::shared_ptr<const CostModel>> ModelSnapshot::VersionsOf(
    const std::string& name) const {
  auto versions = models_;
  std::erase_if(versions, [&](const auto& model) { return model->info().name != name; });
  return versions;
}

double ModelSnapshot::ShareOf(const CostModelInfo& model) const {
  const auto channel = channels_.find(model.name);
  double staged = 0;
  if (channel != channels_.end() && channel->second.rollout &&
      Find({model.name, channel->second.rollout->version}).ok()) {
    staged = channel->second.rollout->share;
    if (channel->second.rollout->version == model.version) return staged;
  }
  return model.version == ServingVersion(model.name) ? 1 - staged : 0;
}

StatusOr<std::shared_ptr<const CostModel>> ModelSnapshot::Find(const CostModelRef& ref) const {
  const std::string& name = ref.name.empty() ? default_name_ : ref.name;
  if (name.empty()) {
    std::set<std::string> names;
    for (const auto& model : loaded_.empty() ? models_ : loaded_) names.insert(model->info().name);
    return WithReason(
        FailedPrecondition("no cost model is named and the server has no default; {}",
                           names.empty() ? "no cost model is loaded"
                                         : fmt::format("name one of {}", fmt::join(names, ", "))),
        FailureReason::kNoModel);
  }
  const int version = ref.version != 0 ? ref.version : ServingVersion(name);
  for (const auto& model : models_) {
    if (model->info().name == name && model->info().version == version) return model;
  }
  const bool by_channel = ref.version == 0 && channels_.contains(name);
  return WithReason(
      FailedPrecondition(
          "no cost model {}{}; {}{}", name,
          !by_channel ? version == 0 ? "" : fmt::format(" version {}", version)
          : version == 0
              ? fmt::format(" ({} is refused)", kChannelFileName)
              : fmt::format(" version {}, which requests without a version get", version),
          DescribeAvailable(models_, name),
          ref.name.empty() ? fmt::format("; requests that name none get {}", name) : ""),
      FailureReason::kNoModel);
}

std::string ModelSnapshot::MissingDefault() const {
  const Status found = default_is_stated_ ? Find({}).status() : absl::OkStatus();
  return found.ok() ? "" : Message(found);
}

StatusOr<std::vector<std::shared_ptr<const CostModel>>> ModelSnapshot::FindFor(
    const PlanRequest& request) const {
  const CostModelRef& ref = request.cost_model;
  const std::vector<std::string> devices = DeviceNames(request.topology);
  const std::optional<ComputeDevice> kind = request.topology.compute_device;
  std::vector<std::shared_ptr<const CostModel>> found;
  if (!ref.name.empty() || (devices.empty() && !kind)) {
    const std::string& name = ref.name.empty() ? default_name_ : ref.name;
    const int version =
        ref.version == 0 && channels_.contains(name) ? ServingVersion(name, request) : ref.version;
    NS_ASSIGN_OR_RETURN(auto model, Find({ref.name, version}));
    // Whoever says nothing of devices has GPUs, as far as we know.
    const bool is_asked_for = ref != CostModelRef() || request.topology.devices.empty() ||
                              default_is_stated_ ||
                              ComputeDeviceOf(model->info().measured_with) != ComputeDevice::kCpu;
    if (is_asked_for) return {{std::move(model)}};
  } else {
    found = MeasuredOn(devices, kind, request);
  }
  for (const auto& model : models_) {
    if (model->info().name == kAnalyticKind) found.push_back(model);
  }
  if (!found.empty()) return found;
  return WithReason(
      FailedPrecondition(
          "no cost model was measured on {}; {}",
          !devices.empty() ? fmt::format("{}", fmt::join(devices, " and "))
                           : fmt::format("{} devices", ToText(kind.value_or(ComputeDevice::kCuda))),
          DescribeAvailable(models_, "")),
      FailureReason::kNoModel);
}

std::vector<std::shared_ptr<const CostModel>> ModelSnapshot::MeasuredOn(
    const std::vector<std::string>& devices, std::optional<ComputeDevice> kind,
    const PlanRequest& request) const {
  const CostModelRef& ref = request.cost_model;
  std::vector<std::shared_ptr<const CostModel>> found;
  std::string_view asked;  // `loaded_` is by name: one fingerprint of the request a name
  int serving = 0;
  for (const auto& model : loaded_) {
    const MeasuredWith& with = model->info().measured_with;
    if (kind && ComputeDeviceOf(with) != kind) continue;
    if (!devices.empty() && !IsEachOf(with.device, devices)) continue;
    const auto& [name, version] = std::tie(model->info().name, model->info().version);
    if (ref.version != 0 && version != ref.version) continue;
    if (ref.version == 0 && channels_.contains(name)) {
      if (asked != name) serving = ServingVersion(name, request);
      asked = name;
      if (version != serving) continue;
    }
    // Versions ascend.
    if (!found.empty() && found.back()->info().name == model->info().name) found.pop_back();
    found.push_back(model);
  }
  const auto rank = [this](const CostModelInfo& info) {
    return std::tuple(info.name != default_name_, !MeasuredComm(info),
                      info.properties.measured_steps.has_value());
  };
  std::ranges::stable_sort(
      found, [&rank](const auto& a, const auto& b) { return rank(a->info()) < rank(b->info()); });
  // Another device of the kind may be meant: only the operator can tell. Of CPUs there is no more to
  // say, as none has a name that a request could give.
  if (devices.empty() && !found.empty()) {
    const bool is_it = found.front()->info().name == default_name_ ||
                       (found.size() == 1 && kind == ComputeDevice::kCpu);
    found.resize(is_it ? 1 : 0);
  }
  return found;
}

ReloadReport ChangesBetween(const ModelSnapshot& before, const ModelSnapshot& now) {
  ReloadReport report;
  std::map<std::string, std::shared_ptr<const CostModel>> gone;
  for (const auto& model : before.loaded()) gone[KeyOf(*model)] = model;
  for (const auto& model : now.loaded()) {
    const auto earlier = gone.extract(KeyOf(*model));
    if (earlier.empty() || earlier.mapped() != model) report.loaded.push_back(KeyOf(*model));
  }
  for (const auto& [key, model] : gone) report.removed.push_back(key);
  for (const RefusedModel& refused : now.refused()) {
    const bool is_known = std::ranges::any_of(before.refused(), [&](const RefusedModel& earlier) {
      return earlier.directory == refused.directory && earlier.reason == refused.reason;
    });
    if (!is_known) report.refused.push_back(refused);
  }
  // A channel of version 0 is a file that was never valid.
  std::map<std::string, ModelChannel> channels = before.channels();
  for (const auto& [name, channel] : now.channels()) {
    const auto earlier = channels.extract(name);
    if (channel.version == 0 || (!earlier.empty() && earlier.mapped() == channel)) continue;
    report.channels[name] = channel.ToText();
  }
  for (const auto& [name, channel] : channels) {
    if (channel.version == 0 || now.VersionsOf(name).empty()) continue;
    report.channels[name] = "newest version";
  }
  return report;
}

StatusOr<std::unique_ptr<ModelRepository>> ModelRepository::Create(ModelRepositoryOptions options,
                                                                   CostModelLoader loader) {
  NS_ASSIGN_OR_RETURN(CostModelRef default_model, ParseDefaultModel(options.default_model));
  std::unique_ptr<ModelRepository> repository(
      new ModelRepository(std::move(options), std::move(default_model), std::move(loader)));
  const ReloadReport report = repository->Reload();
  if (!report.root_status.ok()) return Annotate(report.root_status, "model repository");
  if (report.settling) {
    std::this_thread::sleep_for(kSettleTimeAtStart);
    (void)repository->Reload();
  }
  if (!repository->options_.default_model.empty()) {
    NS_RETURN_IF_ERROR(Annotate(repository->Current()->Find({}).status(), "models.default"));
  }
  return repository;
}

std::shared_ptr<const ModelSnapshot> ModelRepository::Current() const {
  const MutexLock lock(snapshot_mutex_);
  return snapshot_;
}

ReloadReport ModelRepository::Reload() {
  const MutexLock lock(reload_mutex_);
  ReloadReport report;
  const StatusOr<std::vector<std::string>> names = Folders(options_.root);
  if (!names.ok()) {
    report.root_status = names.status();
    return report;
  }
  const auto before = Current();
  std::set<std::string> present;
  for (const std::string& name : *names) {
    const StatusOr<std::vector<std::string>> versions = Folders(options_.root / name);
    if (!versions.ok() && !absl::IsNotFound(versions.status())) {
      // Unreadable is not gone: what was there stays as it was.
      for (const auto& [key, entry] : entries_) {
        if (key.starts_with(name + "/")) present.insert(key);
      }
    }
    if (!versions.ok()) continue;
    for (const std::string& version : *versions) {
      const std::string key = name + "/" + version;
      present.insert(key);
      ReloadEntry(key, entries_[key]);
    }
  }
  std::erase_if(entries_, [&](const auto& entry) { return !present.contains(entry.first); });
  ReloadChannels(*names);
  Publish();
  const auto now = Current();
  report = ChangesBetween(*before, *now);
  report.settling =
      std::ranges::any_of(entries_, [](const auto& entry) { return entry.second.settling; });
  for (const auto& model : now->loaded()) {
    const std::string& digest = model->info().digest;
    const std::string key = KeyOf(*model);
    std::string& last = last_digests_[key];
    if (!last.empty() && last != digest) report.changed_content.push_back({key, last, digest});
    last = digest;
  }
  return report;
}

void ModelRepository::ReloadEntry(const std::string& key, Entry& entry) {
  const fs::path directory = options_.root / key;
  // Taken before loading: what changes meanwhile is loaded again next time.
  std::string fingerprint = Fingerprint(directory);
  const bool known = entry.model != nullptr || !entry.refusal.empty();
  const bool same = fingerprint == entry.fingerprint;
  if (known && same && !entry.try_again) return;
  entry.fingerprint = std::move(fingerprint);

  StatusOr<std::shared_ptr<const CostModel>> model = Load(directory, same);
  // What was checked and what was loaded may be two contents.
  if (model.ok() && Fingerprint(directory) != entry.fingerprint) model = nullptr;
  entry.settling = model.ok() && *model == nullptr;
  entry.try_again = entry.settling || (!model.ok() && !IsFaultOfFiles(model.status()));
  if (entry.settling) return;
  if (model.ok()) {
    entry.model = *std::move(model);
    entry.refusal.clear();
  } else {
    entry.refusal = Printable(Message(model.status()), kMaxReasonBytes);
  }
}

std::string ModelRepository::FaultOf(const std::string& name, int version) const {
  const auto entry = entries_.find(fmt::format("{}/{}", name, version));
  if (entry == entries_.end()) return fmt::format("there is no version {} here", version);
  if (entry->second.model != nullptr) return "";
  return fmt::format("version {} is not served: {}", version,
                     entry->second.settling ? "it may not be whole yet" : entry->second.refusal);
}

void ModelRepository::ReloadChannels(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const fs::path folder = options_.root / name;
    std::string fingerprint;
    AppendStat(folder / kChannelFileName, fingerprint);
    const auto [known, is_new] = channels_.try_emplace(name);
    ChannelEntry& entry = known->second;
    if (is_new) entry.first = Current()->ServingVersion(name) != 0;
    if (fingerprint != entry.fingerprint) entry.wanted = ReadModelChannel(folder);
    entry.fingerprint = std::move(fingerprint);
    if (absl::IsNotFound(entry.wanted.status())) {
      channels_.erase(name);
      continue;
    }
    std::string& refusal = entry.refusal;
    refusal.clear();
    if (entry.wanted.ok()) {
      refusal = FaultOf(name, entry.wanted->version);
      if (refusal.empty() && entry.wanted->rollout) {
        refusal = FaultOf(name, entry.wanted->rollout->version);
      }
    } else {
      refusal = Printable(Message(entry.wanted.status()), kMaxReasonBytes);
      // Not of the content: tried again.
      if (!IsFaultOfFiles(entry.wanted.status())) entry.fingerprint.clear();
    }
    if (entry.wanted.ok() && (refusal.empty() || (entry.in_force.version == 0 && !entry.first))) {
      entry.in_force = *entry.wanted;
      entry.first = false;
    }
  }
  std::erase_if(channels_, [&names](const auto& entry) {
    return !std::ranges::binary_search(names, entry.first);
  });
}

bool ModelRepository::IsBuiltIn(const std::string& name) const {
  return std::ranges::any_of(options_.built_in,
                             [&](const auto& model) { return model->info().name == name; });
}

std::string ModelRepository::DefaultName(const ModelSnapshot& snapshot) {
  if (!options_.default_model.empty()) return default_.name;
  // Nobody knows what a refused name measured: it counts where none is known to have.
  std::set<std::string> names, measured, measured_alone;
  for (const auto& [key, entry] : entries_) {
    const std::string name = key.substr(0, key.find('/'));
    if (IsBuiltIn(name)) continue;
    names.insert(name);
    if (entry.model == nullptr || !MeasuredComm(entry.model->info())) continue;
    measured.insert(name);
    if (!entry.model->info().properties.measured_steps.has_value()) measured_alone.insert(name);
  }
  const bool loaded = !snapshot.loaded_.empty();
  const std::set<std::string>& eligible = !measured_alone.empty() ? measured_alone
                                          : !measured.empty()     ? measured
                                                                  : names;
  if (chosen_name_.empty() && loaded && eligible.size() == 1) chosen_name_ = *eligible.begin();
  if (loaded || !chosen_name_.empty()) return chosen_name_;
  // A built-in model stands in only where there is nothing else.
  return options_.built_in.size() == 1 ? options_.built_in.front()->info().name : "";
}

StatusOr<ModelChannel> ModelRepository::Serve(const std::string& name, int version,
                                              std::optional<double> share) {
  const MutexLock lock(reload_mutex_);
  if (const std::string fault = FaultOf(name, version); !fault.empty()) {
    return NotFound("cost model {}: {}; {}", name, fault,
                    DescribeAvailable(Current()->loaded(), name));
  }
  if (default_.version != 0 && default_.name == name) {
    return FailedPrecondition(
        "models.default of this planner is {}/{}, which serves whatever {} says", name,
        default_.version, kChannelFileName);
  }
  const fs::path folder = options_.root / name;
  NS_ASSIGN_OR_RETURN(const ModelChannel channel, ChannelFor(folder, version, share));
  NS_RETURN_IF_ERROR(WriteModelChannel(folder, channel));
  return channel;
}

StatusOr<std::shared_ptr<const CostModel>> ModelRepository::Load(const fs::path& directory,
                                                                 bool settled) const {
  const std::string version = directory.filename().string();
  if (!VersionFromName(version)) {
    return InvalidArgument(
        "{}: a version's directory must be a positive integer without leading zeros",
        directory.string());
  }
  const std::string name = directory.parent_path().filename().string();
  if (IsBuiltIn(name)) {
    return InvalidArgument("{}: the name {} belongs to a model that is built in; use another",
                           directory.string(), name);
  }
  NS_ASSIGN_OR_RETURN(const ModelManifest manifest, ReadModelManifest(directory));
  std::error_code absent;
  if (!settled && !fs::exists(directory / kFileListName, absent)) return nullptr;
  if (!manifest.unusable_reason.empty() && !options_.accept_unusable) {
    return InvalidArgument(
        "{}: marked as unusable: {}; models.accept_unusable (--accept-unusable-models) serves it "
        "all the same",
        directory.string(), manifest.unusable_reason);
  }
  return loader_(manifest, directory);
}

void ModelRepository::Publish() {
  auto snapshot = std::make_shared<ModelSnapshot>();
  for (const auto& [key, entry] : entries_) {
    if (entry.model != nullptr) snapshot->loaded_.push_back(entry.model);
    if (entry.refusal.empty()) continue;
    snapshot->refused_.push_back(
        {Printable(key, kMaxDirectoryBytes), entry.refusal, entry.model != nullptr});
  }
  snapshot->models_ = snapshot->loaded_;
  snapshot->models_.insert(snapshot->models_.end(), options_.built_in.begin(),
                           options_.built_in.end());
  for (auto* models : {&snapshot->models_, &snapshot->loaded_}) {
    std::sort(models->begin(), models->end(), [](const auto& a, const auto& b) {
      return std::pair(a->info().name, a->info().version) <
             std::pair(b->info().name, b->info().version);
    });
  }
  for (const auto& [name, entry] : channels_) {
    if (!entry.first) snapshot->channels_[name] = entry.in_force;
    if (entry.refusal.empty()) continue;
    const bool is_other = !entry.wanted.ok() || entry.in_force != *entry.wanted;
    const bool earlier_serves = entry.first || (entry.in_force.version != 0 && is_other);
    snapshot->refused_.push_back({Printable(name + "/" + kChannelFileName, kMaxDirectoryBytes),
                                  entry.refusal, earlier_serves});
  }
  // A built-in model has one version.
  for (const auto& model : options_.built_in) snapshot->channels_.erase(model->info().name);
  if (default_.version != 0) snapshot->channels_[default_.name] = {default_.version};
  snapshot->default_name_ = DefaultName(*snapshot);
  snapshot->default_is_stated_ = !options_.default_model.empty();
  const MutexLock lock(snapshot_mutex_);
  snapshot_ = std::move(snapshot);
}

}  // namespace neuroshard
