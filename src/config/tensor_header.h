/* config/tensor_header.h: the JSON inside and beside safetensors files, handed out as plain structs. Here since jansson
 * stays behind this folder. What the JSON says is checked for its form alone; whether its numbers go together is the
 * reader's business (ckpt/safetensors_read.c).
 */
#ifndef TL_CONFIG_TENSOR_HEADER_H
#define TL_CONFIG_TENSOR_HEADER_H

#include "tally/base.h"

typedef struct tl_header_tensor {
    const char *name;  /* UTF-8, without NUL */
    const char *dtype; /* as the file says: "BF16" */
    const int64_t *dim;
    int64_t ndim; /* as many as the file says */
    int64_t begin, end;
} tl_header_tensor;

typedef struct tl_header_pair {
    const char *key, *value;
} tl_header_pair;

/* All of it lives in three blocks; in the order of the file. */
typedef struct tl_tensor_header {
    tl_header_tensor *tensors;
    int64_t count;
    tl_header_pair *metadata;
    int64_t pairs;
    int64_t *dims;
    char *strings;
} tl_tensor_header;

/* More values than this would cost hundreds of megabytes to read; the largest published file has some 100 thousand. */
#define TL_HEADER_MOST_VALUES 8000000

/* One JSON object: tensor names to {"dtype": string, "shape": [counts], "data_offsets": [begin, end]}, and at most one
 * "__metadata__" of strings to strings. White space around it is allowed, as in the reference reader; further keys of a
 * tensor are stepped over. Duplicate keys, other types, negative and fractional numbers, NUL in a string and text that is
 * not UTF-8 are TL_ERR_FORMAT with the place or the name. `name` is the file's, for messages. Freed with
 * tl_tensor_header_free; nothing to free after a failure. */
tl_status tl_tensor_header_parse(const char *text, size_t length, const char *name, tl_tensor_header *header,
                                 tl_error *error) TL_MUST_CHECK;
void tl_tensor_header_free(tl_tensor_header *header);

/* model.safetensors.index.json: {"weight_map": {tensor: file, …}, …}; keys are tensors, values files, in the file's order.
 * A file's name that leads out of the folder is refused. */
typedef struct tl_weight_map {
    tl_header_pair *pairs;
    int64_t count;
    int64_t total_bytes; /* "metadata": {"total_size": …}; −1: it does not say */
    char *strings;
} tl_weight_map;
tl_status tl_weight_map_read(const char *path, tl_weight_map *map, tl_error *error) TL_MUST_CHECK;
tl_status tl_weight_map_parse(const char *text, size_t length, const char *name, tl_weight_map *map,
                              tl_error *error) TL_MUST_CHECK;
void tl_weight_map_free(tl_weight_map *map);

#endif
