/* config/reader.h: typed reading of one JSON object, with sticky errors that name file, line, column and key. */
#ifndef TALLY_CONFIG_READER_H
#define TALLY_CONFIG_READER_H

#include "tally/model.h"

#include <jansson.h>

#define TL_CONFIG_DEPTH 3

typedef struct tl_config_reader {
    const char *name; /* the file, for messages */
    const char *text; /* as given: what messages quote */
    const char *soft; /* the same length, valid JSON */
    size_t length;
    const json_t *object;              /* the object being read */
    const char *path[TL_CONFIG_DEPTH]; /* the keys that lead to it */
    int depth;
    const char *family;
    tl_model *model;
    tl_error *error;
    tl_status status; /* the first failure; every call after it does nothing */
} tl_config_reader;

/* Records a failure about `key` (NULL: about the file); the message starts with the place and the key's name. */
void tl_config_fail(tl_config_reader *r, tl_status status, const char *key, const char *format, ...) TL_PRINTF(4, 5);
/* The key's value as written, shortened for a message. */
const char *tl_config_raw(const tl_config_reader *r, const char *key, char *out, size_t size);

bool tl_config_has(const tl_config_reader *r, const char *key); /* there and not null */
/* Each fails on a wrong type or range and returns 0, false or NULL then. The key must be there. */
int64_t tl_config_size(tl_config_reader *r, const char *key);
double tl_config_real(tl_config_reader *r, const char *key, double low, double high);
bool tl_config_flag(tl_config_reader *r, const char *key);
const char *tl_config_string(tl_config_reader *r, const char *key);

/* Into the object at `key` and back. False, and a failure, where it is no object. */
bool tl_config_enter(tl_config_reader *r, const char *key, const json_t **saved);
void tl_config_leave(tl_config_reader *r, const json_t *saved);

void tl_config_assume(tl_config_reader *r, const char *format, ...) TL_PRINTF(2, 3);
/* Planned all the same, and refused where values are. The first one stands. */
void tl_config_not_computed(tl_config_reader *r, const char *format, ...) TL_PRINTF(2, 3);
void tl_config_ignore(tl_config_reader *r, const char *format, ...) TL_PRINTF(2, 3);
/* "text_config.n_embd" */
void tl_config_source(const tl_config_reader *r, tl_source *source, const char *key);

/* config/family.c and config/keys.c */
typedef void tl_config_family_read(tl_config_reader *r);
/* NULL where the family is not built in. */
tl_config_family_read *tl_config_family_find(const char *model_type, const char **family);
/* Refuses keys of the current object that would make it another model. */
void tl_config_refuse_others(tl_config_reader *r);
/* Only those about how weights are held; what an object around a text_config may say of it. */
void tl_config_refuse_formats(tl_config_reader *r);
/* Notes what the object says that nothing here reads. */
void tl_config_note_rest(tl_config_reader *r);

#endif
