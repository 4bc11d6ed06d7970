// What the library wrote, compared to the definition.
#pragma once

#include <string>

#include "naive.h"

namespace driver {

// Collects what is wrong with a call; keeps the first of each kind.
class Faults {
 public:
  // Compares; NaN must be NaN and an infinity the same one.
  void compare(const char *what, int64_t at, double got, double expected, double budget);
  void add(const char *what, int64_t at, const std::string &text);

  bool any() const { return count_ > 0; }
  int64_t count() const { return count_; }
  const std::string &text() const { return text_; }

 private:
  std::string text_, last_;
  int64_t count_ = 0;
};

// Output, lse and probes of a call that regard_forward has answered.
void check_forward(const RandomCall &asked, const Naive &naive, Faults &faults);

// Calls regard_backward after it, with a random gradient, and checks all it writes.
void check_backward(RandomCall &asked, const Naive &naive, Faults &faults);

}  // namespace driver
