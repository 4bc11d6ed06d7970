// Random calls of the native kernels against loops over doubles, meant to be built with sanitizers: scripts/sanitize.
//
//   driver [--seed N] [--calls N] [--seconds N]
//
// Call number n has the seed N + n, so `--seed S --calls 1` repeats the one that failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "checks.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

// Whether regard_backward is there to be checked.
constexpr bool kGradients = true;

std::string g_current;  // for the report of a sanitizer, which ends the process

[[maybe_unused]] void print_current() { std::fprintf(stderr, "in the call of %s\n", g_current.c_str()); }

struct Options {
  uint64_t seed = 1;
  int64_t calls = INT64_MAX;
  double seconds = 20;
};

[[noreturn]] void refuse(const char *argument) {
  std::fprintf(stderr, "driver: takes --seed N, --calls N and --seconds N, not %s\n", argument);
  std::exit(2);
}

Options parse(int count, char **arguments) {
  Options options;
  for (int n = 1; n < count; n += 2) {
    char *end = nullptr;
    const double number = n + 1 < count ? std::strtod(arguments[n + 1], &end) : -1;
    if (end == nullptr || *end != '\0' || number < 0) refuse(arguments[n]);
    if (std::strcmp(arguments[n], "--seed") == 0)
      options.seed = static_cast<uint64_t>(number);
    else if (std::strcmp(arguments[n], "--calls") == 0)
      options.calls = static_cast<int64_t>(number);
    else if (std::strcmp(arguments[n], "--seconds") == 0)
      options.seconds = number;
    else
      refuse(arguments[n]);
  }
  return options;
}

// Makes one call and says whether it was right.
bool run_call(uint64_t seed) {
  g_current = "seed " + std::to_string(seed);
  driver::RandomCall asked(seed);
  g_current += ": " + asked.describe();
  driver::Faults faults;
  if (!asked.mask_fault.empty()) faults.add("mask", 0, asked.mask_fault);
  if (regard_forward(&asked.call) != REGARD_OK) faults.add("status", 0, "out of memory");
  const driver::Naive naive(asked);
  driver::check_forward(asked, naive, faults);
  if (kGradients && !faults.any()) driver::check_backward(asked, naive, faults);
  if (!faults.any()) return true;
  std::fprintf(stderr, "driver: wrong in %lld places: %s\n%s", static_cast<long long>(faults.count()),
               g_current.c_str(), faults.text().c_str());
  return false;
}

}  // namespace

int main(int count, char **arguments) {
  const Options options = parse(count, arguments);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(print_current);
#endif
  const auto start = std::chrono::steady_clock::now();
  int64_t call = 0, wrong = 0;
  for (; call < options.calls && wrong < 5; call++) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.seconds) break;
    wrong += !run_call(options.seed + call);
  }
  std::printf("driver: %lld calls from seed %llu on, %lld wrong%s\n", static_cast<long long>(call),
              static_cast<unsigned long long>(options.seed), static_cast<long long>(wrong),
              kGradients ? "" : "; gradients are not checked");
  return wrong == 0 ? 0 : 1;
}
