/* base/strings.h: what is asked of names in many places. */
#ifndef BASE_STRINGS_H
#define BASE_STRINGS_H

#include <stdbool.h>
#include <string.h>

/* Whether `text` ends with `end`; it may be no more than that. */
static inline bool tl_ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static inline bool tl_starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

#endif
