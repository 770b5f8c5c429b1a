// The models that a planner serves: ROOT/NAME/VERSION/model.yaml, watched by reloading, and those
// that are built in; served as immutable snapshots.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/models/model_manifest.h"

namespace neuroshard {

// Makes a model of a directory whose manifest has been read. INVALID_ARGUMENT and NOT_FOUND are
// faults of the files: not tried again until a file changes. Any other code is tried again at every
// reload.
using CostModelLoader = std::function<StatusOr<std::shared_ptr<const CostModel>>(
    const ModelManifest& manifest, const std::filesystem::path& directory)>;

// Root, default model and built-in models of a repository.
struct ModelRepositoryOptions {
  std::filesystem::path root;
  // The model of requests that name none. Empty: the only name on disk, or the built-in one while
  // nothing is on disk.
  std::string default_model;
  // Served besides, always; a directory of such a name is refused.
  std::vector<std::shared_ptr<const CostModel>> built_in;
  // Whether models that are marked as unusable (quality in model.yaml) are served.
  bool accept_unusable = false;
};

// A directory whose present content is not served. An earlier content of the same NAME/VERSION may
// still be served.
struct RefusedModel {
  std::string directory;  // relative to the root
  std::string reason;     // one line of UTF-8, as `directory`
  bool previous_content_serving = false;

  bool operator==(const RefusedModel&) const = default;
};

// Immutable: every method from any thread.
class ModelSnapshot {
 public:
  // Empty name: ModelRepositoryOptions::default_model. Version 0: the newest (highest number).
  // FAILED_PRECONDITION, saying what there is, when nothing matches.
  StatusOr<std::shared_ptr<const CostModel>> Find(const CostModelRef& ref) const;

  // Models that may price a request for these devices, best first; never empty. A model that `ref`
  // names, or any model where no device is named: Find's alone. Otherwise the newest versions of
  // those that were measured on the devices (the default first, then those whose communication was
  // measured, then by name), then the formulas over published figures.
  StatusOr<std::vector<std::shared_ptr<const CostModel>>> FindFor(const CostModelRef& ref,
                                                                  const Topology& topology) const;

  // By name, then ascending version: all, and those of them that are not built in.
  const std::vector<std::shared_ptr<const CostModel>>& models() const { return models_; }
  const std::vector<std::shared_ptr<const CostModel>>& loaded() const { return loaded_; }
  const std::vector<RefusedModel>& refused() const { return refused_; }

 private:
  friend class ModelRepository;
  std::vector<std::shared_ptr<const CostModel>> models_;
  std::vector<std::shared_ptr<const CostModel>> loaded_;
  std::vector<RefusedModel> refused_;
  std::string default_model_;
};

// Changes by one reload, for the log and the metrics; a directory that stays as it was is not named
// again.
struct ReloadReport {
  std::vector<std::string> loaded;    // "NAME/VERSION", new or with new content
  std::vector<std::string> removed;   // "NAME/VERSION" that were served
  std::vector<RefusedModel> refused;  // newly, or for another reason than before
  Status root_status;  // not OK: the root could not be read and everything stays as it was

  bool changed() const {
    return !loaded.empty() || !removed.empty() || !refused.empty() || !root_status.ok();
  }
};

// Current() from any thread. Reload() by one thread at a time (calls are serialised): the owner's
// polling thread; the repository has none of its own. Requests that hold a snapshot or a model keep
// it alive and are not disturbed by a reload.
//
// Entries whose names start with '.' or end in ".tmp" or '~', and plain files, are not models and
// are passed over; any other folder below a NAME has to be a positive integer without leading
// zeros. A directory is loaded again when the set of its files, or a file's size, times or inode,
// has changed.
class ModelRepository {
 public:
  // Loads what is there. NOT_FOUND when `root` is no directory; bad models are refused() and do not
  // make it fail.
  static StatusOr<std::unique_ptr<ModelRepository>> Create(ModelRepositoryOptions options,
                                                           CostModelLoader loader);

  std::shared_ptr<const ModelSnapshot> Current() const;

  ReloadReport Reload();

 private:
  // What is known of one NAME/VERSION, or of a folder that is refused by its name.
  struct Entry {
    std::string fingerprint;
    std::shared_ptr<const CostModel> model;  // null when no content was ever good
    std::string refusal;                     // empty when `model` is of the present content
    bool try_again = false;
  };

  ModelRepository(ModelRepositoryOptions options, CostModelLoader loader);

  StatusOr<std::shared_ptr<const CostModel>> Load(const std::filesystem::path& directory) const;
  void ReloadEntry(const std::string& key, Entry& entry, ReloadReport& report);
  static RefusedModel Refused(const std::string& key, const Entry& entry);
  void Publish() NS_REQUIRES(reload_mutex_);

  const ModelRepositoryOptions options_;
  const CostModelLoader loader_;

  Mutex reload_mutex_;
  // By directory relative to the root.
  std::map<std::string, Entry> entries_ NS_GUARDED_BY(reload_mutex_);

  mutable Mutex snapshot_mutex_;
  std::shared_ptr<const ModelSnapshot> snapshot_ NS_GUARDED_BY(snapshot_mutex_);
};

}  // namespace neuroshard
