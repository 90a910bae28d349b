/* Status, the first error, the default allocator, checked arithmetic and text of 128-bit counts. */
#include "tally/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

const char *tl_status_name(tl_status status) {
    static const char *const names[] = {"ok",    "argument", "shape",  "dtype",       "overflow", "memory",
                                        "state", "io",       "format", "unsupported", "not found"};
    size_t index = (size_t)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

/* A message that did not fit ends in "..." at a whole UTF-8 character, so that terminals and JSON can show it. */
static void mark_truncated(char *message, size_t size) {
    size_t end = size - 4;
    while (end > 0 && ((unsigned char)message[end] & 0xC0) == 0x80)
        end--;
    memcpy(message + end, "...", 4);
}

tl_status tl_vfail(tl_error *e, tl_status status, const char *format, va_list args) {
    if (!e || e->status != TL_OK || status == TL_OK)
        return status;
    e->status = status;
    int length = vsnprintf(e->message, sizeof e->message, format, args);
    if (length < 0)
        snprintf(e->message, sizeof e->message, "%s error (its message could not be written)", tl_status_name(status));
    else if ((size_t)length >= sizeof e->message)
        mark_truncated(e->message, sizeof e->message);
    return status;
}

tl_status tl_fail(tl_error *e, tl_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tl_vfail(e, status, format, args);
    va_end(args);
    return status;
}

void tl_error_clear(tl_error *e) {
    if (!e)
        return;
    e->status = TL_OK;
    e->message[0] = '\0';
}

/* A storage is aligned inside a somewhat larger block whose start is kept before it: aligned_alloc costs several times what
 * malloc does, a quarter of a small op, and leaves pieces that keep a large block from being used again.
 *
 * A large one asks for huge pages, as the arena does: plain loops over 64 MiB run a third faster on them, and a new one
 * costs 32 page faults, not 16384. */
enum { STORAGE_ALIGN = 64, LARGE_STORAGE = 4 << 20, HUGE_PAGE = 2 << 20 };

static void *storage_alloc(size_t bytes, size_t align) {
    size_t step = bytes >= LARGE_STORAGE ? HUGE_PAGE : STORAGE_ALIGN;
    step = align > step ? align : step;
    if (bytes > SIZE_MAX - step)
        return NULL;
    char *block = malloc(bytes + step); /* malloc aligns by 16, so at least that much lies before the bytes */
    if (!block)
        return NULL;
    char *data = block + step - ((uintptr_t)block & (step - 1));
    memcpy(data - sizeof block, &block, sizeof block);
#if defined(__linux__)
    if (bytes >= LARGE_STORAGE)
        (void)madvise(data, bytes & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE); /* a hint: nothing depends on it */
#endif
    return data;
}

static void *default_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    (void)self;
    if (kind == TL_ALLOC_STORAGE)
        return storage_alloc(bytes, align);
    if (align <= _Alignof(max_align_t))
        return malloc(bytes);
    /* aligned_alloc wants a multiple of the alignment. */
    if (bytes > SIZE_MAX - (align - 1))
        return NULL;
    return aligned_alloc(align, (bytes + align - 1) & ~(align - 1));
}

static void default_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    (void)self;
    (void)bytes;
    if (kind == TL_ALLOC_STORAGE)
        memcpy(&pointer, (char *)pointer - sizeof pointer, sizeof pointer);
    free(pointer);
}

const tl_allocator *tl_allocator_default(void) {
    static const tl_allocator allocator = {default_alloc, default_release, NULL};
    return &allocator;
}

bool tl_add_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

bool tl_mul_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool tl_add_u128(tl_u128 a, tl_u128 b, tl_u128 *out) {
    if (b > ~(tl_u128)0 - a)
        return false;
    *out = a + b;
    return true;
}

/* Not __builtin_mul_overflow: clang turns that into a call libgcc does not have for 128 bits. */
bool tl_mul_u128(tl_u128 a, tl_u128 b, tl_u128 *out) {
    const uint64_t a_high = (uint64_t)(a >> 64), b_high = (uint64_t)(b >> 64);
    if (!a_high && !b_high) {
        *out = (tl_u128)(uint64_t)a * (uint64_t)b;
        return true;
    }
    if (a_high && b_high)
        return false;
    const tl_u128 cross = a_high ? (tl_u128)a_high * (uint64_t)b : (tl_u128)b_high * (uint64_t)a;
    if (cross >> 64)
        return false;
    return tl_add_u128(cross << 64, (tl_u128)(uint64_t)a * (uint64_t)b, out);
}

char *tl_u128_text(tl_u128 value, char buffer[TL_U128_DIGITS]) {
    char digits[TL_U128_DIGITS];
    int count = 0;
    do {
        digits[count++] = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value);
    for (int i = 0; i < count; i++)
        buffer[i] = digits[count - 1 - i];
    buffer[count] = '\0';
    return buffer;
}

double tl_u128_double(tl_u128 value) { return (double)value; /* the compiler's conversion rounds to nearest even */ }
