// The models that a planner serves: those in ROOT/NAME/VERSION, which reloading watches, and
// built-in ones.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/models/model_channel.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Makes a model of a directory whose manifest was read. INVALID_ARGUMENT and NOT_FOUND are faults
// of the files, which are not tried again until a file changes; after other codes every reload
// tries again.
using CostModelLoader = std::function<StatusOr<std::shared_ptr<const CostModel>>(
    const ModelManifest& manifest, const std::filesystem::path& directory)>;

// Root, default model and built-in models of a repository.
struct ModelRepositoryOptions {
  std::filesystem::path root;
  // Model of requests that name none: NAME, or NAME/VERSION, which also overrides channel.yaml for
  // that name. Empty: the first name that is the only one on disk whose communication was measured
  // (without rates of steps where there is such a name), or the only one where none was. It stays
  // the default when others join, and when it goes nothing takes its place, not even the built-in
  // model. Until there is such a name, the built-in model is the default while nothing is on disk,
  // else there is none.
  std::string default_model;
  // Models that are always served; a directory of such a name is refused.
  std::vector<std::shared_ptr<const CostModel>> built_in;
  // Serves models that are marked as unusable (quality in model.yaml).
  bool accept_unusable = false;
};

// A directory, or a NAME/channel.yaml, whose present content is not served. An earlier content of
// the same path may still be.
struct RefusedModel {
  std::string directory;  // or file; relative to the root
  std::string reason;     // one line of UTF-8, as `directory`
  bool previous_content_serving = false;

  bool operator==(const RefusedModel&) const = default;
};

// The models served at one moment. Requests take a snapshot once, so that reloads do not disturb
// them. Immutable, so thread-safe.
class ModelSnapshot {
 public:
  // Finds one model. Empty name: ModelRepositoryOptions::default_model. Version 0: the one of the
  // name's channel, else the newest (highest number). FAILED_PRECONDITION, listing what there is,
  // when nothing matches.
  StatusOr<std::shared_ptr<const CostModel>> Find(const CostModelRef& ref) const;

  // Returns the models that may price a request, best first; never empty. A request that names a
  // model, or has no topology, gets Find's alone. Otherwise a model answers only where it was
  // measured on the request's devices, and the formulas come last:
  // - Named devices: a version of each name that was measured on them (the default first, then
  //   those whose communication was measured, then by name).
  // - compute_device alone: the default if it was measured on that kind; on CPUs also the only name
  //   that was.
  // - Neither: the default, unless it was measured on CPUs and was not stated in the options.
  // Where no version is named, a staged one takes the requests whose place in its rollout is below
  // its share; a request without tables never goes to a staged version.
  StatusOr<std::vector<std::shared_ptr<const CostModel>>> FindFor(const PlanRequest& request) const;

  // Returns why the stated default is missing; empty: it is there, or none was stated.
  std::string MissingDefault() const;

  // Returns the served versions of a name, ascending.
  std::vector<std::shared_ptr<const CostModel>> VersionsOf(const std::string& name) const;

  // Returns the share, in [0, 1], of the requests for the model's name without a version that this
  // version prices.
  double ShareOf(const CostModelInfo& model) const;

  // Models by name, then ascending version. loaded() has those that are not built in.
  const std::vector<std::shared_ptr<const CostModel>>& models() const { return models_; }
  const std::vector<std::shared_ptr<const CostModel>>& loaded() const { return loaded_; }
  const std::vector<RefusedModel>& refused() const { return refused_; }
  // Channels in force, by name.
  const std::map<std::string, ModelChannel>& channels() const { return channels_; }

 private:
  friend class ModelRepository;
  std::vector<std::shared_ptr<const CostModel>> models_;
  std::vector<std::shared_ptr<const CostModel>> loaded_;
  // Returns the version that serves requests for this name where no rollout takes them; 0: none.
  int ServingVersion(const std::string& name) const;
  // Returns the version that serves this request.
  int ServingVersion(const std::string& name, const PlanRequest& request) const;
  // Returns the models of FindFor without the formulas, for `devices`, or for `kind` where no
  // device is named.
  std::vector<std::shared_ptr<const CostModel>> MeasuredOn(const std::vector<std::string>& devices,
                                                           std::optional<ComputeDevice> kind,
                                                           const PlanRequest& request) const;

  std::vector<RefusedModel> refused_;
  std::map<std::string, ModelChannel> channels_;  // in force, by name
  std::string default_name_;                      // empty: there is none
  bool default_is_stated_ = false;                // by ModelRepositoryOptions::default_model
};

// Returns the place of a request in the rollout of a version, [0, 1) and uniform over requests: the
// first 13 digits of its RequestFingerprint with that version, as a fraction. It is the same on
// every replica.
double PlaceInRollout(const PlanRequest& request, const CostModelRef& version);

// A version whose files differ from those that served under its name and number before.
struct ChangedContent {
  std::string model;   // "NAME/VERSION"
  std::string before;  // digests
  std::string now;
};

// Changes between two snapshots, for the log and the metrics. What did not change is not listed.
struct ReloadReport {
  std::vector<std::string> loaded;              // "NAME/VERSION", new or with new content
  std::vector<std::string> removed;             // "NAME/VERSION" that were served
  std::vector<RefusedModel> refused;            // refused newly, or for another reason than before
  std::vector<ChangedContent> changed_content;  // of `loaded`, by Reload alone
  // Changed channels in force: "NAME" -> ModelChannel::ToText, or "newest version".
  std::map<std::string, std::string> channels;
  Status root_status;     // not OK: the root could not be read and everything stays as it was
  bool settling = false;  // there are directories that the next reload decides about

  bool changed() const {
    return !loaded.empty() || !removed.empty() || !refused.empty() || !channels.empty() ||
           !root_status.ok();
  }
};

// Returns what differs. changed_content, root_status and settling are not its own, and stay empty.
ReloadReport ChangesBetween(const ModelSnapshot& before, const ModelSnapshot& now);

// Loads models from disk and publishes snapshots. Current() is thread-safe; Reload() is serialized
// and called by the owner's polling thread, since the repository has none. A reload costs a scan of
// the root, and loads only changed directories.
//
// Plain files, and entries whose names start with '.' or end in ".tmp" or '~', are skipped; any
// other folder below a NAME must be named by a positive integer without leading zeros. A directory
// is loaded again when its set of files, or a file's size, times or inode, has changed. A directory
// without a list of its files (model_directory.h) may be a copy in progress: it is loaded when two
// readings find it the same.
//
// A channel comes into force when all its versions are served; until then, and while its file is
// faulty, it is refused and the one before stays in force. At the start, when there is none before,
// requests for versions that are missing fail rather than go to another version.
class ModelRepository {
 public:
  // Loads the models of the root; bad ones are refused() and are no error. NOT_FOUND when `root` is
  // no directory; FAILED_PRECONDITION, listing what there is, when `default_model` is stated and
  // there is no such model.
  static StatusOr<std::unique_ptr<ModelRepository>> Create(ModelRepositoryOptions options,
                                                           CostModelLoader loader);

  std::shared_ptr<const ModelSnapshot> Current() const;

  ReloadReport Reload();

  // Writes the name's channel, which comes into force with the next reload: `version` takes `share`
  // of the requests from the version that serves, or all of them. NOT_FOUND: no such version is
  // loaded. FAILED_PRECONDITION: `default_model` names a version, which overrides the channel, or
  // as ChannelFor. INVALID_ARGUMENT: a share of a version that serves all requests. UNAVAILABLE:
  // the disk refuses.
  StatusOr<ModelChannel> Serve(const std::string& name, int version, std::optional<double> share);

 private:
  // State of one NAME/VERSION, or of a folder that is refused by its name.
  struct Entry {
    std::string fingerprint;
    std::shared_ptr<const CostModel> model;  // null until some content was good
    std::string refusal;                     // empty when `model` is of the present content
    bool try_again = false;
    // It has no list of its files and was read once in this state; the next reload decides.
    bool settling = false;
  };

  // State of one NAME/channel.yaml.
  struct ChannelEntry {
    std::string fingerprint;
    StatusOr<ModelChannel> wanted = absl::NotFoundError("");  // what the file says
    ModelChannel in_force;                                    // version 0: none was ever valid
    std::string refusal;                                      // empty when `wanted` is in force
    // It appeared while its name served without a channel, which goes on until it comes into force.
    bool first = false;
  };

  ModelRepository(ModelRepositoryOptions options, CostModelRef default_model,
                  CostModelLoader loader)
      : options_(std::move(options)),
        default_(std::move(default_model)),
        loader_(std::move(loader)) {}

  // Returns null for a directory that must be `settled` first.
  StatusOr<std::shared_ptr<const CostModel>> Load(const std::filesystem::path& directory,
                                                  bool settled) const;
  void ReloadEntry(const std::string& key, Entry& entry) NS_REQUIRES(reload_mutex_);
  void ReloadChannels(const std::vector<std::string>& names) NS_REQUIRES(reload_mutex_);
  // Returns why this version cannot serve; empty: it can.
  std::string FaultOf(const std::string& name, int version) const NS_REQUIRES(reload_mutex_);
  // Returns whether a built-in model has this name, so that no directory may.
  bool IsBuiltIn(const std::string& name) const;
  std::string DefaultName(const ModelSnapshot& snapshot) NS_REQUIRES(reload_mutex_);
  void Publish() NS_REQUIRES(reload_mutex_);

  const ModelRepositoryOptions options_;
  const CostModelRef default_;  // as stated
  const CostModelLoader loader_;

  Mutex reload_mutex_;
  // Entries by directory relative to the root.
  std::map<std::string, Entry> entries_ NS_GUARDED_BY(reload_mutex_);
  std::map<std::string, ChannelEntry> channels_ NS_GUARDED_BY(reload_mutex_);  // by name
  // Digests of what served last under a NAME/VERSION, also of removed ones.
  std::map<std::string, std::string> last_digests_ NS_GUARDED_BY(reload_mutex_);
  // Default name where none is stated; empty until there was an only name.
  std::string chosen_name_ NS_GUARDED_BY(reload_mutex_);

  mutable Mutex snapshot_mutex_;
  std::shared_ptr<const ModelSnapshot> snapshot_ NS_GUARDED_BY(snapshot_mutex_) =
      std::make_shared<const ModelSnapshot>();
};

// Parses the NAME or NAME/VERSION of ModelRepositoryOptions::default_model. INVALID_ARGUMENT
// otherwise.
StatusOr<CostModelRef> ParseDefaultModel(const std::string& text);

}  // namespace neuroshard
