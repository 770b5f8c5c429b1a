#include "server/pretrain/console_progress.h"

#include <fmt/format.h>

namespace neuroshard {
namespace {

constexpr double kBarIntervalMs = 100;
constexpr double kLineIntervalMs = 5000;
constexpr int kBarWidth = 24;

std::string Bar(double share) {
  const int done = static_cast<int>(share * kBarWidth);
  return std::string(done, '#') + std::string(kBarWidth - done, '.');
}

}  // namespace

void ConsoleProgress::OnEpoch(const EpochReport& report) {
  const TimePoint now = clock_->Now();
  const bool first = report.network != network_;
  if (first) {
    network_ = report.network;
    begin_ = now;
  }
  const double interval_ms = style_ == ProgressStyle::kBar ? kBarIntervalMs : kLineIntervalMs;
  if (!first && MillisecondsBetween(printed_, now) < interval_ms) return;
  printed_ = now;
  Print(report);
}

void ConsoleProgress::Print(const EpochReport& report) {
  const double elapsed_s = MillisecondsBetween(begin_, printed_) / 1000;
  const double share = static_cast<double>(report.epoch) / static_cast<double>(report.max_epochs);
  // An upper bound: training usually stops early.
  const double left_s = report.epoch < 2
                            ? 0
                            : elapsed_s / static_cast<double>(report.epoch - 1) *
                                  static_cast<double>(report.max_epochs - report.epoch);
  const std::string text = fmt::format(
      "epoch {}/{} train {:.5g} validation {:.5g} best {:.5g} (epoch {}) ETA at most {:.0f} s",
      report.epoch, report.max_epochs, report.train_loss, report.validation_loss,
      report.best_validation_loss, report.best_epoch, left_s);
  if (style_ == ProgressStyle::kBar) {
    fmt::print(out_, "\r\x1b[K{} [{}] {}", report.network, Bar(share), text);
  } else {
    fmt::print(out_, "{}: {}\n", report.network, text);
  }
  std::fflush(out_);
}

void ConsoleProgress::OnFinished(const EpochReport& last, const std::string& reason) {
  const double elapsed_s = MillisecondsBetween(begin_, clock_->Now()) / 1000;
  fmt::print(out_, "{}{}: {} after epoch {}; best validation loss {:.5g} in epoch {}; {:.1f} s\n",
             style_ == ProgressStyle::kBar ? "\r\x1b[K" : "", last.network, reason, last.epoch,
             last.best_validation_loss, last.best_epoch, elapsed_s);
  std::fflush(out_);
}

void ConsoleProgress::OnWarning(const std::string& message) {
  fmt::print(out_, "{}warning: {}\n", style_ == ProgressStyle::kBar ? "\r\x1b[K" : "", message);
  std::fflush(out_);
}

}  // namespace neuroshard
