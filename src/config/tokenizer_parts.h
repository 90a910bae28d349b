/* config/tokenizer_parts.h: what tokenizer.json says beside vocabulary and merges. Internal to config. */
#ifndef TL_CONFIG_TOKENIZER_PARTS_H
#define TL_CONFIG_TOKENIZER_PARTS_H

#include "config/tokenizer_file.h"

#include <jansson.h>

/* normalizer, pre_tokenizer, post_processor, decoder, truncation and padding of the root object. */
tl_status tl_tokenizer_parts_read(tl_tokenizer_file *file, const json_t *root, tl_error *error) TL_MUST_CHECK;
/* "file: WHERE is FOUND; wanted". */
tl_status tl_tokenizer_wrong(const tl_tokenizer_file *file, const char *where, const json_t *found, const char *wanted,
                             tl_error *error);
/* A boolean that may be left out. */
tl_status tl_tokenizer_flag(const tl_tokenizer_file *file, const json_t *object, const char *where, const char *key,
                            bool otherwise, bool *value, tl_error *error) TL_MUST_CHECK;

#endif
