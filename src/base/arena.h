/* base/arena.h: memory that is given back all at once. Chunks come from the injected allocator (TL_ALLOC_HOST). */
#ifndef TL_BASE_ARENA_H
#define TL_BASE_ARENA_H

#include "tally/base.h"

typedef struct tl_arena_chunk tl_arena_chunk;

typedef struct tl_arena {
    const tl_allocator *allocator;
    tl_arena_chunk *chunk; /* the newest; links to the older ones */
    unsigned char *next;   /* free space of the newest chunk: next .. end */
    unsigned char *end;
    size_t chunk_bytes; /* size of the next chunk: doubles up to a limit */
} tl_arena;

void tl_arena_open(tl_arena *arena, const tl_allocator *allocator);
void tl_arena_close(tl_arena *arena);
/* `bytes` of uninitialised memory, aligned to 16; NULL if the allocator fails. */
void *tl_arena_alloc(tl_arena *arena, size_t bytes);
/* A copy of a string of `length` bytes, NUL-terminated; NULL if the allocator fails. */
char *tl_arena_text(tl_arena *arena, const char *text, size_t length);

#endif
