#include "interpose.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INTERPOSE_BY_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERPOSE_BY_SANITIZER 1
#endif

static atomic_bool counting;
static _Atomic int64_t seen_calls, seen_bytes;
static _Thread_local int known;

static void see(size_t bytes) {
    if (known > 0 || !atomic_load_explicit(&counting, memory_order_relaxed))
        return;
    atomic_fetch_add(&seen_calls, 1);
    atomic_fetch_add(&seen_bytes, (int64_t)bytes);
}

void interpose_known_begin(void) { known++; }

void interpose_known_end(void) { known--; }

interposed interpose_end(void) {
    atomic_store(&counting, false);
    return (interposed){atomic_load(&seen_calls), atomic_load(&seen_bytes)};
}

#ifdef INTERPOSE_BY_SANITIZER

extern int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                                     void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *pointer, size_t bytes) {
    (void)pointer;
    see(bytes);
}

static void on_free(const volatile void *pointer) { (void)pointer; }

void interpose_begin(void) {
    static bool installed;
    if (!installed)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    installed = true;
    atomic_store(&seen_calls, 0);
    atomic_store(&seen_bytes, 0);
    atomic_store(&counting, true);
}

#else

/* glibc's own names for what is replaced here; free stays glibc's. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

void interpose_begin(void) {
    atomic_store(&seen_calls, 0);
    atomic_store(&seen_bytes, 0);
    atomic_store(&counting, true);
}

void *malloc(size_t bytes) {
    see(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    see(count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    see(bytes);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    see(bytes);
    return __libc_memalign(align, bytes);
}

void *memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes) {
    see(bytes);
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    if (align < sizeof(void *) || (align & (align - 1)) != 0)
        return EINVAL;
    see(bytes);
    void *pointer = __libc_memalign(align, bytes);
    if (!pointer)
        return ENOMEM;
    *out = pointer;
    return 0;
}

static void *map(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    see(bytes);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(at, bytes, protection, flags, file, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off64_t offset) {
    return map(at, bytes, protection, flags, file, offset);
}

#endif
