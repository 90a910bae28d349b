/* tally/base.h: status, errors, memory and 128-bit counts. Every other header includes this one.
 *
 * Invariants of the whole library
 *   - It never prints, exits or aborts on user input. It returns a status and leaves one message.
 *   - No process globals beyond const tables. Several contexts live side by side.
 *   - All memory comes from an injected tl_allocator; a failing allocation is TL_ERR_MEMORY, never a crash.
 *   - Sizes are 64 bit and checked before anything is allocated; counts of FLOPs are 128 bit and checked.
 */
#ifndef TALLY_BASE_H
#define TALLY_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TL_VERSION_MAJOR 0
#define TL_VERSION_MINOR 1
#define TL_VERSION_PATCH 0
#define TL_VERSION "0.1.0"

/* Counts of FLOPs: one 405B step of 16M tokens is 3.9e19, more than 2^64. A type of gcc and clang on 64-bit machines, which
 * -pedantic would warn of. */
#if defined(__GNUC__)
__extension__ typedef unsigned __int128 tl_u128;
#define TL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TL_MUST_CHECK __attribute__((warn_unused_result))
#else
typedef unsigned __int128 tl_u128;
#define TL_PRINTF(fmt, args)
#define TL_MUST_CHECK
#endif

/* "file:line" of the caller, as a string literal. */
#define TL_STR_(x) #x
#define TL_STR(x) TL_STR_(x)
#define TL_HERE __FILE__ ":" TL_STR(__LINE__)

typedef enum tl_status {
    TL_OK = 0,
    TL_ERR_ARGUMENT,    /* a value outside what the function takes */
    TL_ERR_SHAPE,       /* shapes that do not go together */
    TL_ERR_DTYPE,       /* a number format the operation does not take */
    TL_ERR_OVERFLOW,    /* a size or count beyond its type */
    TL_ERR_MEMORY,      /* an allocation failed */
    TL_ERR_STATE,       /* the right call at the wrong time (a value asked of meta, a changed saved tensor) */
    TL_ERR_IO,          /* the operating system refused */
    TL_ERR_FORMAT,      /* a file is not what it should be */
    TL_ERR_UNSUPPORTED, /* understood, named, and not done here */
    TL_ERR_NOT_FOUND    /* no such name */
} tl_status;

/* "shape", "memory", ...: a word for a status, never NULL. */
const char *tl_status_name(tl_status status);

/* The first error and its message. Later failures do not overwrite it, so that chains are checked once. */
typedef struct tl_error {
    tl_status status;
    char message[1024]; /* what was asked, what was found, what would work; no trailing newline */
} tl_error;

/* Records a failure if none stands yet. Returns `status` so that `return tl_fail(...)` reads well. `e` may be NULL. */
tl_status tl_fail(tl_error *e, tl_status status, const char *format, ...) TL_PRINTF(3, 4);
tl_status tl_vfail(tl_error *e, tl_status status, const char *format, va_list args);
void tl_error_clear(tl_error *e);

/* What an allocation is for, told to the allocator so that a wrapper can count them apart. */
typedef enum tl_alloc_kind {
    TL_ALLOC_STORAGE, /* the bytes of a tensor or of an op's workspace; what the ledger accounts */
    TL_ALLOC_HOST     /* handles, tape nodes, event logs, tables: never part of the ledger */
} tl_alloc_kind;

/* An injected allocator. `align` is a power of two (64 for storages). `alloc` returns NULL on failure.
 * `release` gets the size and kind that were asked for. Neither is called with a NULL pointer or zero bytes. */
typedef struct tl_allocator {
    void *(*alloc)(void *self, size_t bytes, size_t align, tl_alloc_kind kind);
    void (*release)(void *self, void *pointer, size_t bytes, tl_alloc_kind kind);
    void *self;
} tl_allocator;

/* malloc-based; what a context uses when none is injected. */
const tl_allocator *tl_allocator_default(void);

/* Checked arithmetic: false on overflow, and then *out is untouched. */
bool tl_add_i64(int64_t a, int64_t b, int64_t *out);
bool tl_mul_i64(int64_t a, int64_t b, int64_t *out);
bool tl_add_u128(tl_u128 a, tl_u128 b, tl_u128 *out);
bool tl_mul_u128(tl_u128 a, tl_u128 b, tl_u128 *out);

/* Decimal digits of `value`; `buffer` needs TL_U128_DIGITS bytes. Returns buffer. */
#define TL_U128_DIGITS 40
char *tl_u128_text(tl_u128 value, char buffer[TL_U128_DIGITS]);
/* Nearest double (no libm). */
double tl_u128_double(tl_u128 value);

#ifdef __cplusplus
}
#endif
#endif
