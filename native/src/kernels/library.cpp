// What the library does when it is loaded, and in the child of a fork.
#include <pthread.h>

#include "memory.h"
#include "regard.h"
#include "threads.h"

namespace {

void in_forked_child() {
  regard::g_forked.store(true);
  regard::Pool::shared().forget();
}

[[gnu::constructor]] void on_load() { pthread_atfork(nullptr, nullptr, in_forked_child); }

}  // namespace

uint32_t regard_abi_version(void) { return REGARD_ABI_VERSION; }
