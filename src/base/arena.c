#include "base/arena.h"

#include <string.h>

enum { FIRST_CHUNK = 16 * 1024, LARGEST_CHUNK = 1024 * 1024, ALIGN = 16 };

struct tl_arena_chunk {
    tl_arena_chunk *older;
    size_t bytes; /* of the whole chunk, this header included */
};

#define HEADER_BYTES ((sizeof(tl_arena_chunk) + ALIGN - 1) & ~(size_t)(ALIGN - 1))

void tl_arena_open(tl_arena *arena, const tl_allocator *allocator) {
    *arena = (tl_arena){.allocator = allocator, .chunk_bytes = FIRST_CHUNK};
}

void tl_arena_close(tl_arena *arena) {
    while (arena->chunk) {
        tl_arena_chunk *older = arena->chunk->older;
        arena->allocator->release(arena->allocator->self, arena->chunk, arena->chunk->bytes, TL_ALLOC_HOST);
        arena->chunk = older;
    }
    arena->next = arena->end = NULL;
}

static bool arena_grow(tl_arena *arena, size_t bytes) {
    size_t size = arena->chunk_bytes;
    if (bytes > size - HEADER_BYTES)
        size = bytes + HEADER_BYTES;
    tl_arena_chunk *chunk = arena->allocator->alloc(arena->allocator->self, size, ALIGN, TL_ALLOC_HOST);
    if (!chunk)
        return false;
    chunk->older = arena->chunk;
    chunk->bytes = size;
    arena->chunk = chunk;
    arena->next = (unsigned char *)chunk + HEADER_BYTES;
    arena->end = (unsigned char *)chunk + size;
    if (arena->chunk_bytes < LARGEST_CHUNK)
        arena->chunk_bytes *= 2;
    return true;
}

void *tl_arena_alloc(tl_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (bytes > (size_t)(arena->end - arena->next) && !arena_grow(arena, bytes))
        return NULL;
    void *pointer = arena->next;
    arena->next += bytes;
    return pointer;
}

char *tl_arena_text(tl_arena *arena, const char *text, size_t length) {
    if (length == SIZE_MAX)
        return NULL;
    char *copy = tl_arena_alloc(arena, length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}
