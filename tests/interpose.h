/* tests/interpose.h: every allocation of the process, seen from outside the library.
 *
 * The test program defines malloc and its relatives itself, so that an allocation which does not come through the injected
 * allocator is seen whoever made it. Under a sanitizer, which owns malloc, its hook is used instead (mmap is not seen then).
 */
#ifndef TALLY_TESTS_INTERPOSE_H
#define TALLY_TESTS_INTERPOSE_H

#include <stdint.h>

typedef struct interposed {
    int64_t calls, bytes;
} interposed;

/* Starts counting at zero; any thread's calls count. */
void interpose_begin(void);
interposed interpose_end(void);

/* What the calling thread allocates between the two is known by other means and not counted. They nest. */
void interpose_known_begin(void);
void interpose_known_end(void);

#endif
