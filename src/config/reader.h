/* config/reader.h: typed reading of one JSON object, with sticky errors that name file, line, column and key. */
#ifndef TALLY_CONFIG_READER_H
#define TALLY_CONFIG_READER_H

#include "tally/model.h"

#include <jansson.h>

#define TL_CONFIG_DEPTH 3
#define TL_CONFIG_ASKED 160

typedef struct tl_config_reader {
    const char *name; /* the file, for messages */
    const char *text; /* as given: what messages quote */
    const char *soft; /* the same length, valid JSON */
    size_t length;
    const json_t *object;              /* the object being read */
    const char *path[TL_CONFIG_DEPTH]; /* the keys that lead to it */
    int depth;
    int base; /* the depth of the model's own object: 1 inside a text_config */
    /* The keys of the model's own object that its family asked for: what is refused or noted is the rest. */
    const char *asked[TL_CONFIG_ASKED];
    int n_asked;
    bool sizes_assumed; /* a size that is missing is the family's default: files that hold only what differs from it */
    const char *family;
    tl_model *model;
    tl_error *error;
    tl_status status; /* the first failure; every call after it does nothing */
} tl_config_reader;

/* Records a failure about `key` (NULL: about the file); the message starts with the place and the key's name. */
void tl_config_fail(tl_config_reader *r, tl_status status, const char *key, const char *format, ...) TL_PRINTF(4, 5);
/* The key's value as written, shortened for a message. */
const char *tl_config_raw(const tl_config_reader *r, const char *key, char *out, size_t size);

/* There and not null; and from now on the key is one that the family reads. `key` outlives the reader. */
bool tl_config_has(tl_config_reader *r, const char *key);
bool tl_config_is_null(const tl_config_reader *r, const char *key);   /* there and null */
bool tl_config_was_asked(const tl_config_reader *r, const char *key); /* by tl_config_has */
int64_t tl_config_count(tl_config_reader *r, const char *key);        /* a size that may be 0 */
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
typedef struct tl_config_family {
    const char *type; /* model_type */
    void (*read)(tl_config_reader *r);
    const char *architecture; /* with a language model's head */
    const char *note;         /* for the list of families: NULL where another type of the same family is listed */
} tl_config_family;
/* NULL where the family is not built in. Either may be NULL. */
const tl_config_family *tl_config_family_find(const char *model_type, const char *architecture);
/* "gpt2, llama, …" */
const char *tl_config_family_names(char *out, size_t size);
/* Refuses keys of the current object that would make it another model and that its family did not ask for. */
void tl_config_refuse_others(tl_config_reader *r);
/* Only those about how weights are held; what an object around a text_config may say of it. */
void tl_config_refuse_formats(tl_config_reader *r);
/* Notes what the object says that nothing here reads. */
void tl_config_note_rest(tl_config_reader *r);

#endif
