/* config/machine_file.h: reading the cache of a measured machine. Here since jansson stays behind this folder.
 *
 * The file's form is told where it is written, hw/machine_cache.c.
 */
#ifndef TL_CONFIG_MACHINE_FILE_H
#define TL_CONFIG_MACHINE_FILE_H

#include "tally/machine.h"

#define TL_MACHINE_SCHEMA "tally/machine/1"

typedef struct tl_machine_file {
    tl_machine machine; /* without its memory, which is not in the file */
    char version[32];   /* of the tally that measured */
    char build[16];     /* "onednn" or "plain" */
} tl_machine_file;

/* Anything can be in a file: what is not such a cache, whole and within sensible bounds, is TL_ERR_FORMAT with the place or
 * key. `name` is for messages. *file is untouched on failure. */
tl_status tl_machine_file_parse(const char *text, size_t length, const char *name, tl_machine_file *file,
                                tl_error *error) TL_MUST_CHECK;

#endif
