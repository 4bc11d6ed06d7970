// The forward pass by blocks of rows, which takes any call.
#pragma once

#include "regard.h"

namespace regard {

void forward_by_blocks(const regard_call &call);

}  // namespace regard
