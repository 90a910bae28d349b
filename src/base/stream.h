/* base/stream.h: names of random streams. Apart from base/random.h, which the planner does not link. */
#ifndef TL_BASE_STREAM_H
#define TL_BASE_STREAM_H

#include "tally/base.h"

/* The stream of a named thing, e.g. ("init", "layer.3.attention.query"): 64-bit FNV-1a (Fowler, Noll, Vo) over the
 * bytes of `kind`, a zero byte, the bytes of `name`. */
uint64_t tl_stream_id(const char *kind, const char *name);

#endif
