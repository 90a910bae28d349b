/* tally/run.h: the JSON files of a run (run.json, ledger.json, a task's file), read back. A value is named by its path:
 * "memory.planned.peak_bytes", "by_module.3.name" (elements of a list count from 0).
 */
#ifndef TALLY_RUN_H
#define TALLY_RUN_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_run_file tl_run_file;

/* One JSON object of at most 16 MiB; the same care and the same messages as for a config.json, though a number that is none
 * (NaN, Infinity) or beyond what a double holds is refused. NULL with *error filled. */
tl_run_file *tl_run_file_read(const char *path, tl_error *error);
/* The same of a text in memory, which is changed; `name` is for messages. */
tl_run_file *tl_run_file_parse(char *text, size_t length, const char *name, tl_error *error);
void tl_run_file_free(tl_run_file *file);

typedef enum tl_run_value {
    TL_RUN_MISSING, /* or null */
    TL_RUN_TEXT,
    TL_RUN_NUMBER,
    TL_RUN_FLAG,
    TL_RUN_LIST,
    TL_RUN_OBJECT
} tl_run_value;
tl_run_value tl_run_file_kind(const tl_run_file *file, const char *path);
/* A number, or 1 or 0 for true and false; whole numbers beyond 64 bits to 15 digits. NaN where it is neither. */
double tl_run_file_number(const tl_run_file *file, const char *path);
/* A whole number of the file, digit by digit: false where it is none, has a point or an exponent, or is 2^128 and more. */
bool tl_run_file_whole(const tl_run_file *file, const char *path, tl_u128 *magnitude, bool *negative);

/* There and not null. */
bool tl_run_file_has(const tl_run_file *file, const char *path);
/* Elements of a list or keys of an object; 0 for anything else. */
int64_t tl_run_file_count(const tl_run_file *file, const char *path);
/* Key i of the object at `path` ("" is the whole file), in the order of the file; NULL beyond the last. */
const char *tl_run_file_key(const tl_run_file *file, const char *path, int64_t index);

/* Each fails, naming the file and the path, where the value is missing, of another type or out of range. */
tl_status tl_run_file_integer(const tl_run_file *file, const char *path, int64_t low, int64_t high, int64_t *value,
                              tl_error *error) TL_MUST_CHECK;
tl_status tl_run_file_real(const tl_run_file *file, const char *path, double low, double high, double *value,
                           tl_error *error) TL_MUST_CHECK;
/* Lives as long as the file. NULL with *error filled. */
const char *tl_run_file_text(const tl_run_file *file, const char *path, tl_error *error);
/* A string, number or boolean as the text one would type for it. */
tl_status tl_run_file_typed(const tl_run_file *file, const char *path, char *text, size_t size,
                            tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
