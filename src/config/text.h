/* config/text.h: the bytes of a description before and beside the JSON reader. */
#ifndef TALLY_CONFIG_TEXT_H
#define TALLY_CONFIG_TEXT_H

#include "tally/base.h"

#define TL_CONFIG_MOST_BYTES ((size_t)16 << 20)
/* A description holds some hundred values; more than this is some other file, and would cost the reader memory. */
#define TL_CONFIG_MOST_VALUES 200000

/* What a file that is not JSON really is ("a zip archive (PyTorch checkpoint?)"), or NULL where the bytes do not tell. */
const char *tl_config_sniff(const char *text, size_t length);

/* Reads a regular file of at most TL_CONFIG_MOST_BYTES; never waits for a FIFO or a terminal. *text is malloc'd and NUL-ended. */
tl_status tl_config_load(const char *path, char **text, size_t *length, tl_error *error) TL_MUST_CHECK;
/* The same for another kind of file: at most `most` bytes, and what messages say was wanted. */
tl_status tl_config_load_kind(const char *path, size_t most, const char *wanted, char **text, size_t *length,
                              tl_error *error) TL_MUST_CHECK;

/* The JSON reader refuses Infinity, NaN, reals beyond a double and integers beyond 64 bits wherever they stand, and configs hold
 * them in keys that do not matter. Turns each into a string of the same length in place, so that places in the text stay true and
 * a key that does matter still fails, on its type. Returns the number of values (commas, counted outside strings). */
size_t tl_config_soften(char *text, size_t length);

typedef struct tl_config_place {
    size_t line, column;  /* from 1; columns count characters */
    size_t start, length; /* the value's bytes in the text */
} tl_config_place;

/* Where the value at path[0].path[1]… stands in a text that is known to be valid JSON. False: not there under that spelling. */
bool tl_config_locate(const char *text, size_t length, const char *const *path, int depth, tl_config_place *place);

#endif
