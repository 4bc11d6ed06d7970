// Few queries against many keys: cached decoding.
#pragma once

#include "regard.h"

namespace regard {

// Whether all query rows that read a kv head are so few that packing its keys would cost more than it saves.
bool is_decoding(const regard_call &call);

// Output, lse and probes of such a call; may throw std::bad_alloc.
void decode(const regard_call &call);

}  // namespace regard
