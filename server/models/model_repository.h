// The models that a planner serves: ROOT/NAME/VERSION/model.yaml, watched by reloading, and those
// that are built in; served as immutable snapshots.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/models/model_channel.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Makes a model of a directory whose manifest has been read. INVALID_ARGUMENT and NOT_FOUND are
// faults of the files: not tried again until a file changes. Any other code is tried again at every
// reload.
using CostModelLoader = std::function<StatusOr<std::shared_ptr<const CostModel>>(
    const ModelManifest& manifest, const std::filesystem::path& directory)>;

// Root, default model and built-in models of a repository.
struct ModelRepositoryOptions {
  std::filesystem::path root;
  // The model of requests that name none: NAME, or NAME/VERSION, which pins that version against
  // channel.yaml as well. Empty: the first name that is the only one on disk whose communication
  // was measured, or the only one where none was. It stays the default whatever joins it, and when
  // it goes: no other name, and not the built-in one, takes its place. Until there is such a name:
  // the built-in one while nothing is on disk, else none.
  std::string default_model;
  // Served besides, always; a directory of such a name is refused.
  std::vector<std::shared_ptr<const CostModel>> built_in;
  // Whether models that are marked as unusable (quality in model.yaml) are served.
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

// Immutable: every method from any thread.
class ModelSnapshot {
 public:
  // Empty name: ModelRepositoryOptions::default_model. Version 0: the one of the name's channel,
  // else the newest (highest number). FAILED_PRECONDITION, saying what there is, when nothing
  // matches.
  StatusOr<std::shared_ptr<const CostModel>> Find(const CostModelRef& ref) const;

  // Models that may price a request, best first; never empty. For one that names a model, or has no
  // topology: Find's alone. Otherwise a model answers only where it was measured on what the request
  // is for, and the formulas come last. Devices that are named: a version of each name that was
  // measured on them (the default first, then those whose communication was measured, then by name).
  // compute_device alone: the default if it was measured on that kind; on CPUs also the only name
  // that was. Neither: the default, unless it was measured on CPUs and nobody stated it. Where no
  // version is named, a staged one takes those requests whose place in its rollout is below its
  // share; a question without tables is never staged.
  StatusOr<std::vector<std::shared_ptr<const CostModel>>> FindFor(const PlanRequest& request) const;

  // Why the default that was stated is not there; empty: it is, or none was.
  std::string MissingDefault() const;

  // All that are served of a name, ascending.
  std::vector<std::shared_ptr<const CostModel>> VersionsOf(const std::string& name) const;

  // Share of the requests for the model's name without a version that this version prices, [0, 1].
  double ShareOf(const CostModelInfo& model) const;

  // By name, then ascending version: all, and those of them that are not built in.
  const std::vector<std::shared_ptr<const CostModel>>& models() const { return models_; }
  const std::vector<std::shared_ptr<const CostModel>>& loaded() const { return loaded_; }
  const std::vector<RefusedModel>& refused() const { return refused_; }
  // Those in force, by name.
  const std::map<std::string, ModelChannel>& channels() const { return channels_; }

 private:
  friend class ModelRepository;
  std::vector<std::shared_ptr<const CostModel>> models_;
  std::vector<std::shared_ptr<const CostModel>> loaded_;
  // The version that serves requests for this name where no rollout takes them; 0: none.
  int ServingVersion(const std::string& name) const;
  // The same for one request.
  int ServingVersion(const std::string& name, const PlanRequest& request) const;
  // FindFor's without the formulas, of devices, or of a kind where no device is named.
  std::vector<std::shared_ptr<const CostModel>> MeasuredOn(const std::vector<std::string>& devices,
                                                           std::optional<ComputeDevice> kind,
                                                           const PlanRequest& request) const;

  std::vector<RefusedModel> refused_;
  std::map<std::string, ModelChannel> channels_;  // in force, by name
  std::string default_name_;                      // empty: there is none
  bool default_is_stated_ = false;                // by ModelRepositoryOptions::default_model
};

// Where a request stands in the rollout of a version, [0, 1), uniform over requests: the first 13
// digits of its RequestFingerprint with that version, as a fraction. The same on every replica.
double PlaceInRollout(const PlanRequest& request, const CostModelRef& version);

// A version whose files are others than those that served under its name and number before.
struct ChangedContent {
  std::string model;   // "NAME/VERSION"
  std::string before;  // digests
  std::string now;
};

// Changes by one reload, for the log and the metrics; a directory that stays as it was is not named
// again.
struct ReloadReport {
  std::vector<std::string> loaded;              // "NAME/VERSION", new or with new content
  std::vector<ChangedContent> changed_content;  // of `loaded`
  std::vector<std::string> removed;             // "NAME/VERSION" that were served
  std::vector<RefusedModel> refused;            // newly, or for another reason than before
  // "NAME" -> ModelChannel::ToText, or "newest version", where that changed.
  std::map<std::string, std::string> channels;
  Status root_status;  // not OK: the root could not be read and everything stays as it was

  bool changed() const {
    return !loaded.empty() || !removed.empty() || !refused.empty() || !channels.empty() ||
           !root_status.ok();
  }
};

// Current() from any thread. Reload() by one thread at a time (calls are serialised): the owner's
// polling thread; the repository has none of its own. Requests that hold a snapshot or a model keep
// it alive and are not disturbed by a reload.
//
// Entries whose names start with '.' or end in ".tmp" or '~', and plain files, are not models and
// are passed over; any other folder below a NAME has to be a positive integer without leading
// zeros. A directory is loaded again when the set of its files, or a file's size, times or inode,
// has changed. One without a list of its files (model_files.h) may be half there: it is loaded when
// two readings find it the same.
//
// A channel comes into force when all its versions are served here; until then, and while its file
// is faulty, it is refused and the one before stays in force. At the start, with none before, the
// versions that it names and that are not there serve nobody: never another one in their place.
class ModelRepository {
 public:
  // Loads what is there. NOT_FOUND when `root` is no directory; FAILED_PRECONDITION, saying what
  // there is, when `default_model` is stated and there is no such model; bad models are refused()
  // and do not make it fail.
  static StatusOr<std::unique_ptr<ModelRepository>> Create(ModelRepositoryOptions options,
                                                           CostModelLoader loader);

  std::shared_ptr<const ModelSnapshot> Current() const;

  ReloadReport Reload();

  // Writes the name's channel: `version` takes `share` of the requests from the one that serves, or
  // all of them. In force after a reload. NOT_FOUND: no such version is loaded. FAILED_PRECONDITION:
  // `default_model` names a version, which goes before the channel, or as ChannelFor says.
  // INVALID_ARGUMENT: a share of a version that serves all requests. UNAVAILABLE: the disk refuses.
  StatusOr<ModelChannel> Serve(const std::string& name, int version, std::optional<double> share);

 private:
  // What is known of one NAME/VERSION, or of a folder that is refused by its name.
  struct Entry {
    std::string fingerprint;
    std::shared_ptr<const CostModel> model;  // null when no content was ever good
    std::string refusal;                     // empty when `model` is of the present content
    bool try_again = false;
    // Without a list of its files, and read once as it is now: see whether it stays.
    bool settling = false;
  };

  // What is known of one NAME/channel.yaml.
  struct ChannelEntry {
    std::string fingerprint;
    StatusOr<ModelChannel> wanted = absl::NotFoundError("");  // what the file says
    ModelChannel in_force;                                    // version 0: none was ever good
    std::string refusal;                                      // empty when `wanted` is in force
    // Came while its name served without a channel, which goes on until it can be obeyed.
    bool first = false;
  };

  // Whether what served before a refused channel still does.
  static bool ServesEarlier(const ChannelEntry& entry);

  ModelRepository(ModelRepositoryOptions options, CostModelRef default_model,
                  CostModelLoader loader);

  // Null: not before it is `settled`.
  StatusOr<std::shared_ptr<const CostModel>> Load(const std::filesystem::path& directory,
                                                  bool settled) const;
  void ReloadEntry(const std::string& key, Entry& entry, ReloadReport& report)
      NS_REQUIRES(reload_mutex_);
  bool IsSettling() NS_EXCLUDES(reload_mutex_);
  void ReloadChannels(const std::vector<std::string>& names, ReloadReport& report)
      NS_REQUIRES(reload_mutex_);
  // Why this version cannot serve; empty: it can.
  std::string FaultOf(const std::string& name, int version) const NS_REQUIRES(reload_mutex_);
  // Whether a model of that name is built in, so that no directory may have it.
  bool IsBuiltIn(const std::string& name) const;
  std::string DefaultName(const ModelSnapshot& snapshot) NS_REQUIRES(reload_mutex_);
  static RefusedModel Refused(const std::string& key, const Entry& entry);
  void Publish() NS_REQUIRES(reload_mutex_);

  const ModelRepositoryOptions options_;
  const CostModelRef default_;  // as stated
  const CostModelLoader loader_;

  Mutex reload_mutex_;
  // By directory relative to the root.
  std::map<std::string, Entry> entries_ NS_GUARDED_BY(reload_mutex_);
  std::map<std::string, ChannelEntry> channels_ NS_GUARDED_BY(reload_mutex_);  // by name
  // Of what served last under a NAME/VERSION, also of one that is gone.
  std::map<std::string, std::string> last_digests_ NS_GUARDED_BY(reload_mutex_);
  // The default where none is stated; empty until there was an only name.
  std::string chosen_name_ NS_GUARDED_BY(reload_mutex_);

  mutable Mutex snapshot_mutex_;
  std::shared_ptr<const ModelSnapshot> snapshot_ NS_GUARDED_BY(snapshot_mutex_);
};

// The NAME or NAME/VERSION of ModelRepositoryOptions::default_model. INVALID_ARGUMENT otherwise.
StatusOr<CostModelRef> ParseDefaultModel(const std::string& text);

}  // namespace neuroshard
