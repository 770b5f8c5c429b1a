#include "server/search/refine/comm_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace neuroshard {
namespace {

// What an older batch counts beside a newer one.
constexpr double kFading = 0.9;
// Keeps inputs that never vary (a largest load that nobody changes) at the prior's coefficient.
constexpr double kRidge = 1e-3;

}  // namespace

void CommResponse::Moments::Add(const double (&x)[3], double y) {
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) inputs[i][j] += x[i] * x[j];
    output[i] += x[i] * y;
  }
}

void CommResponse::Moments::Fade() {
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) inputs[i][j] *= kFading;
    output[i] *= kFading;
  }
}

// Gauss elimination on inputs scaled to a unit diagonal, which the ridge refers to.
void CommResponse::Moments::Solve(double (&solution)[3]) const {
  double a[3][4];
  double scale[3];
  double step[3];
  for (int i = 0; i < 3; ++i) scale[i] = inputs[i][i] > 0 ? 1 / std::sqrt(inputs[i][i]) : 0;
  for (int i = 0; i < 3; ++i) {
    double left = output[i];
    for (int j = 0; j < 3; ++j) {
      a[i][j] = inputs[i][j] * scale[i] * scale[j];
      left -= inputs[i][j] * solution[j];
    }
    a[i][i] += kRidge;
    a[i][3] = left * scale[i];
  }
  for (int i = 0; i < 3; ++i) {
    for (int k = i + 1; k < 3; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (int j = i; j < 4; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  for (int i = 2; i >= 0; --i) {
    double value = a[i][3];
    for (int j = i + 1; j < 3; ++j) value -= a[i][j] * step[j];
    step[i] = value / a[i][i];
  }
  for (int i = 0; i < 3; ++i) solution[i] += step[i] * scale[i];
}

void CommResponse::Assume(const Coefficients& coefficients) {
  prior_ = coefficients;
  coefficients_ = coefficients;
}

void CommResponse::LearnBackward(const CommChange& change, double cost_change_ms) {
  backward_.Add({change.own_load, change.largest_load, 0}, cost_change_ms);
}

void CommResponse::LearnForward(const CommChange& change, double cost_change_ms) {
  forward_.Add({change.own_load, change.largest_load, change.wait_ms}, cost_change_ms);
}

void CommResponse::Fit() {
  double backward[3] = {prior_.backward_own, prior_.backward_largest, 0};
  double forward[3] = {prior_.forward_own, prior_.forward_largest, prior_.forward_wait};
  backward_.Solve(backward);
  forward_.Solve(forward);
  coefficients_.backward_own = std::max(0.0, backward[0]);
  coefficients_.backward_largest = std::max(0.0, backward[1]);
  coefficients_.forward_own = std::max(0.0, forward[0]);
  coefficients_.forward_largest = std::max(0.0, forward[1]);
  coefficients_.forward_wait = std::clamp(forward[2], 0.0, 1.0);
  backward_.Fade();
  forward_.Fade();
}

}  // namespace neuroshard
