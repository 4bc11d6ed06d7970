#include "regard.h"

uint32_t regard_abi_version(void) { return REGARD_ABI_VERSION; }
