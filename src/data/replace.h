/* data/replace.h: a file that is replaced whole or not at all. Written under PATH.tmp, flushed to the disk, renamed over
 * PATH, the folder flushed. Whatever happens meanwhile, the old file is whole or the new one is. */
#ifndef TALLY_DATA_REPLACE_H
#define TALLY_DATA_REPLACE_H

#include "tally/base.h"

typedef struct tl_replace {
    int file; /* to write into */
    const char *path;
    char name[4096]; /* its temporary name */
} tl_replace;

tl_status tl_replace_begin(tl_replace *replace, const char *path, tl_error *error);
/* All of it, or *error says what the system said. */
tl_status tl_replace_write(tl_replace *replace, const void *data, uint64_t bytes, tl_error *error);
/* Over bytes written before. */
tl_status tl_replace_patch(tl_replace *replace, const void *data, size_t bytes, uint64_t offset, tl_error *error);
/* What a folder names is on the disk. A file system whose folders cannot be flushed is no error. */
tl_status tl_flush_folder(const char *folder, tl_error *error);
/* Ends it: renames if `status` is TL_OK, else takes the temporary file away and returns `status`. */
tl_status tl_replace_end(tl_replace *replace, tl_status status, tl_error *error);

#endif
