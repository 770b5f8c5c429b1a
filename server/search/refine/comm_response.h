// How communication answers to small changes of a placement: a linear model learnt from the
// placements that were priced, so that most neighbours need not be.
#pragma once

namespace neuroshard {

// What changed at one rank between two placements, in the unit of loads and in ms.
struct CommChange {
  double own_load = 0;      // of this rank
  double largest_load = 0;  // over all ranks
  double wait_ms = 0;       // forward: largest start offset less own
};

// backward = own * d own_load + largest * d largest_load; forward the same plus
// wait * d wait_ms. Least squares over all that was learnt, older samples counting less.
class CommResponse {
 public:
  struct Coefficients {
    double backward_own = 0;
    double backward_largest = 0;
    double forward_own = 0;
    double forward_largest = 0;
    double forward_wait = 0;
  };

  // What is taken to hold until more is learnt.
  void Assume(const Coefficients& coefficients);

  void LearnBackward(const CommChange& change, double cost_change_ms);
  void LearnForward(const CommChange& change, double cost_change_ms);
  // After a batch was learnt. Coefficients stay within what communication can be: none is negative,
  // and a rank waits at most as long as it is ahead.
  void Fit();

  const Coefficients& coefficients() const { return coefficients_; }

 private:
  // Sums of products of three inputs and of the inputs with the output.
  struct Moments {
    double inputs[3][3] = {};
    double output[3] = {};

    void Add(const double (&x)[3], double y);
    void Fade();
    // Starts from `solution`, the prior, and moves away from it as far as the sums ask for.
    void Solve(double (&solution)[3]) const;
  };

  Moments backward_;
  Moments forward_;
  Coefficients prior_;
  Coefficients coefficients_;
};

}  // namespace neuroshard
