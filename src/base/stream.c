/* Names of random streams: FNV-1a. */
#include "base/stream.h"

static uint64_t add_byte(uint64_t hash, unsigned char byte) { return (hash ^ byte) * UINT64_C(0x100000001B3); }

uint64_t tl_stream_id(const char *kind, const char *name) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; *kind; kind++)
        hash = add_byte(hash, (unsigned char)*kind);
    hash = add_byte(hash, 0); /* so that ("ab", "c") is not ("a", "bc") */
    for (; *name; name++)
        hash = add_byte(hash, (unsigned char)*name);
    return hash;
}
