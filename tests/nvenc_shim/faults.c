/* Faults that a test asks for in $NVENC_SHIM; README.md lists them. */
#include <stdlib.h>
#include <string.h>
#include "shim.h"

long fault(const char *name) {
    const char *at = getenv("NVENC_SHIM");
    size_t length = strlen(name);
    while (at && *at) {
        if (!strncmp(at, name, length)) {
            if (at[length] == '=') return atol(at + length + 1);
            if (at[length] == ',' || !at[length]) return 1;
        }
        at = strchr(at, ',');
        if (at) at++;
    }
    return -1;
}
