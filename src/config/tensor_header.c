/* config/tensor_header.c: the JSON of safetensors files and of the index that lies beside them. */
#include "config/tensor_header.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/nearest.h"
#include "config/text.h"

typedef struct builder {
    const char *file; /* for messages */
    char *next;       /* free bytes of the strings */
    tl_error *error;
} builder;

/* A string is never longer than it was in the text, quotes included: the text's length is room enough for all. */
static const char *keep(builder *b, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *at = b->next;
    memcpy(at, text, bytes);
    b->next += bytes;
    return at;
}

static tl_status parse(const char *text, size_t length, const char *name, json_t **root, tl_error *error) {
    json_error_t problem;
    char quoted[256];
    size_t values = 0;
    for (const char *at = text; (at = memchr(at, ',', length - (size_t)(at - text))) != NULL; at++)
        values++;
    if (values > TL_HEADER_MOST_VALUES)
        return tl_fail(error, TL_ERR_FORMAT, "%s: its JSON holds %zu values; at most %d are read", name, values,
                       TL_HEADER_MOST_VALUES);
    const char *nul = memchr(text, '\0', length);
    if (nul) /* jansson steps over some of them */
        return tl_fail(error, TL_ERR_FORMAT, "%s: not valid JSON: byte %zu of it is NUL", name, (size_t)(nul - text));
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (!*root && json_error_code(&problem) == json_error_out_of_memory)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory to read its JSON of %zu bytes", name, length);
    if (!*root)
        return tl_fail(error, TL_ERR_FORMAT, "%s: not valid JSON, line %d column %d: %s", name, problem.line,
                       problem.column, tl_quotable(problem.text, strlen(problem.text), quoted, sizeof quoted));
    if (json_is_object(*root))
        return TL_OK;
    json_decref(*root);
    *root = NULL;
    return tl_fail(error, TL_ERR_FORMAT, "%s: its JSON is no object", name);
}

static tl_status wrong(const builder *b, const char *name, const char *what) {
    char quoted[128];
    return tl_fail(b->error, TL_ERR_FORMAT, "%s: tensor \"%s\": %s", b->file,
                   tl_quotable(name, strlen(name), quoted, sizeof quoted), what);
}

static tl_status read_tensor(builder *b, const char *name, const json_t *value, int64_t **dims, tl_header_tensor *out) {
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
                 *range = json_object_get(value, "data_offsets");
    if (!json_is_object(value))
        return wrong(b, name, "is described by something that is no object");
    if (!json_is_string(dtype))
        return wrong(b, name, "\"dtype\" is missing or no string");
    if (!json_is_array(shape))
        return wrong(b, name, "\"shape\" is missing or no list");
    if (!json_is_array(range) || json_array_size(range) != 2)
        return wrong(b, name, "\"data_offsets\" is missing or no list of two numbers");
    out->ndim = (int64_t)json_array_size(shape);
    out->dim = *dims;
    for (int64_t i = 0; i < out->ndim; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return wrong(b, name, "\"shape\" holds something that is no count");
        *(*dims)++ = json_integer_value(size);
    }
    const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < 0)
        return wrong(b, name, "\"data_offsets\" holds something that is no place in a file");
    out->begin = json_integer_value(begin);
    out->end = json_integer_value(end);
    out->name = keep(b, name);
    out->dtype = keep(b, json_string_value(dtype));
    return TL_OK;
}

static const char metadata_key[] = "__metadata__";

static tl_status read_metadata(builder *b, json_t *object, tl_tensor_header *h) {
    const char *key;
    json_t *value;
    if (!object)
        return TL_OK;
    if (!json_is_object(object))
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: \"__metadata__\" is no object of strings", b->file);
    json_object_foreach(object, key, value) {
        if (!json_is_string(value)) {
            char quoted[128];
            return tl_fail(b->error, TL_ERR_FORMAT, "%s: \"__metadata__\" holds \"%s\", which is no string", b->file,
                           tl_quotable(key, strlen(key), quoted, sizeof quoted));
        }
        h->metadata[h->pairs].key = keep(b, key);
        h->metadata[h->pairs++].value = keep(b, json_string_value(value));
    }
    return TL_OK;
}

static tl_status build(builder *b, json_t *root, tl_tensor_header *h) {
    const char *key;
    json_t *value;
    int64_t *dims = h->dims;
    tl_status status = read_metadata(b, json_object_get(root, metadata_key), h);
    json_object_foreach(root, key, value) {
        if (status != TL_OK)
            break;
        if (strcmp(key, metadata_key) == 0)
            continue;
        status = read_tensor(b, key, value, &dims, &h->tensors[h->count]);
        h->count += status == TL_OK;
    }
    return status;
}

static int64_t count_dims(json_t *root) {
    const char *key;
    json_t *value;
    int64_t n = 0;
    json_object_foreach(root, key, value) n += (int64_t)json_array_size(json_object_get(value, "shape"));
    return n;
}

tl_status tl_tensor_header_parse(const char *text, size_t length, const char *name, tl_tensor_header *h,
                                 tl_error *error) {
    json_t *root = NULL;
    memset(h, 0, sizeof *h);
    tl_status status = parse(text, length, name, &root, error);
    if (status != TL_OK)
        return status;
    size_t pairs = json_object_size(json_object_get(root, metadata_key));
    h->tensors = calloc(json_object_size(root) + 1, sizeof *h->tensors);
    h->metadata = calloc(pairs + 1, sizeof *h->metadata);
    h->dims = malloc(((size_t)count_dims(root) + 1) * sizeof *h->dims);
    h->strings = malloc(length + 1);
    builder b = {.file = name, .next = h->strings, .error = error};
    if (!h->tensors || !h->metadata || !h->dims || !h->strings)
        status = tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its table of tensors", name);
    else
        status = build(&b, root, h);
    json_decref(root);
    if (status != TL_OK)
        tl_tensor_header_free(h);
    return status;
}

void tl_tensor_header_free(tl_tensor_header *h) {
    free(h->tensors);
    free(h->metadata);
    free(h->dims);
    free(h->strings);
    memset(h, 0, sizeof *h);
}

/* ---- the index of a model in several files ---- */

static tl_status read_map(builder *b, json_t *object, tl_weight_map *map) {
    const char *key;
    json_t *value;
    char quoted[128];
    if (json_object_size(object) == 0)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: its \"weight_map\" is empty: it names no tensor", b->file);
    json_object_foreach(object, key, value) {
        const char *file = json_string_value(value);
        if (!file || file[0] == '\0' || file[0] == '.' || strchr(file, '/'))
            return tl_fail(b->error, TL_ERR_FORMAT,
                           "%s: \"weight_map\" names no file beside it for \"%s\"; a file's name is wanted", b->file,
                           tl_quotable(key, strlen(key), quoted, sizeof quoted));
        map->pairs[map->count].key = keep(b, key);
        map->pairs[map->count++].value = keep(b, file);
    }
    return TL_OK;
}

tl_status tl_weight_map_parse(const char *text, size_t length, const char *name, tl_weight_map *map, tl_error *error) {
    json_t *root = NULL;
    memset(map, 0, sizeof *map);
    tl_status status = parse(text, length, name, &root, error);
    if (status != TL_OK)
        return status;
    json_t *object = json_object_get(root, "weight_map");
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    map->total_bytes = json_is_integer(total) ? json_integer_value(total) : -1;
    map->pairs = calloc(json_object_size(object) + 1, sizeof *map->pairs);
    map->strings = malloc(length + 1);
    builder b = {.file = name, .next = map->strings, .error = error};
    if (!json_is_object(object))
        status = tl_fail(error, TL_ERR_FORMAT, "%s: has no \"weight_map\" from tensors to files", name);
    else if (!map->pairs || !map->strings)
        status = tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its table of tensors", name);
    else
        status = read_map(&b, object, map);
    json_decref(root);
    if (status != TL_OK)
        tl_weight_map_free(map);
    return status;
}

tl_status tl_weight_map_read(const char *path, tl_weight_map *map, tl_error *error) {
    char *text = NULL, quoted[256];
    size_t length = 0;
    memset(map, 0, sizeof *map);
    tl_status status = tl_config_load(path, &text, &length, error);
    if (status != TL_OK)
        return status;
    status = tl_weight_map_parse(text, length, tl_quotable(path, strlen(path), quoted, sizeof quoted), map, error);
    free(text);
    return status;
}

void tl_weight_map_free(tl_weight_map *map) {
    free(map->pairs);
    free(map->strings);
    memset(map, 0, sizeof *map);
}
