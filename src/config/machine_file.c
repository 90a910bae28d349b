/* config/machine_file.c: see machine_file.h. */
#include "config/machine_file.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* No machine does this many FLOPs or bytes a second; what says so is no measurement. */
#define MOST_RATE 1e18
#define MOST_SIZE ((int64_t)1 << 48)

typedef struct reader {
    const char *name;
    tl_error *error;
    tl_status status; /* the first failure; reading goes on without effect */
} reader;

static void bad(reader *r, const char *key, const char *wanted) {
    if (r->status == TL_OK)
        r->status = tl_fail(r->error, TL_ERR_FORMAT,
                            "%s: \"%s\" is not %s: this is no measurement of ours; measure again with "
                            "`tally machine --refresh'",
                            r->name, key, wanted);
}

static void read_string(reader *r, const json_t *object, const char *key, char *out, size_t size) {
    const json_t *value = json_object_get(object, key);
    size_t length = value ? json_string_length(value) : 0;
    if (!json_is_string(value) || length >= size || memchr(json_string_value(value), '\0', length)) {
        bad(r, key, "a short text");
        return;
    }
    memcpy(out, json_string_value(value), length + 1);
}

static int64_t read_whole(reader *r, const json_t *object, const char *key, int64_t least, int64_t most) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most) {
        bad(r, key, "a whole number within bounds");
        return least;
    }
    return json_integer_value(value);
}

/* 0 where `none` allows it: not measured. */
static double read_rate(reader *r, const json_t *object, const char *key, bool none) {
    const json_t *value = json_object_get(object, key);
    double rate = json_number_value(value);
    if (!json_is_number(value) || !isfinite(rate) || !(rate > 0 || (none && rate == 0)) || rate > MOST_RATE) {
        bad(r, key, "a rate per second within bounds");
        return 0;
    }
    return rate;
}

static const json_t *read_list(reader *r, const json_t *object, const char *key, size_t most) {
    const json_t *list = json_object_get(object, key);
    if (!json_is_array(list) || json_array_size(list) > most) {
        bad(r, key, "a list of the right length");
        return NULL;
    }
    return list;
}

static void read_levels(reader *r, const json_t *object, tl_machine *machine) {
    const json_t *list = read_list(r, object, "bandwidth", sizeof machine->level / sizeof machine->level[0]);
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        read_string(r, item, "level", machine->level[i].name, sizeof machine->level[i].name);
        machine->level[i].bytes = read_whole(r, item, "bytes", 1, MOST_SIZE);
        machine->level[i].bytes_per_s = read_rate(r, item, "bytes_per_s", false);
        machine->n_levels++;
    }
}

static void read_dtype(reader *r, const json_t *object, tl_dtype *dtype) {
    char name[8] = "";
    read_string(r, object, "dtype", name, sizeof name);
    for (int i = 0; i < TL_DTYPE_COUNT; i++)
        if (tl_dtype_is_float((tl_dtype)i) && strcmp(tl_dtype_name((tl_dtype)i), name) == 0) {
            *dtype = (tl_dtype)i;
            return;
        }
    bad(r, "dtype", "the name of a floating format");
}

static void read_shapes(reader *r, const json_t *object, tl_machine *machine) {
    const json_t *list = read_list(r, object, "products", TL_MACHINE_SHAPES);
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        tl_machine_shape *shape = &machine->shape[i];
        read_dtype(r, item, &shape->dtype);
        shape->m = read_whole(r, item, "m", 1, MOST_SIZE);
        shape->n = read_whole(r, item, "n", 1, MOST_SIZE);
        shape->k = read_whole(r, item, "k", 1, MOST_SIZE);
        shape->flop_per_s = read_rate(r, item, "flop_per_s", false);
        machine->n_shapes++;
    }
}

static void read_all(reader *r, const json_t *root, tl_machine_file *file) {
    char schema[32] = "";
    read_string(r, root, "schema", schema, sizeof schema);
    if (strcmp(schema, TL_MACHINE_SCHEMA) != 0)
        bad(r, "schema", "\"" TL_MACHINE_SCHEMA "\"");
    tl_machine *machine = &file->machine;
    read_string(r, root, "version", file->version, sizeof file->version);
    read_string(r, root, "build", file->build, sizeof file->build);
    read_string(r, root, "cpu", machine->cpu, sizeof machine->cpu);
    read_string(r, root, "kernels", machine->kernels, sizeof machine->kernels);
    machine->threads = (int)read_whole(r, root, "threads", 1, 1 << 20);
    machine->measured_at = read_whole(r, root, "measured_at", 0, INT64_MAX);
    machine->disturbed = read_rate(r, root, "disturbed", true);
    if (machine->disturbed > 1)
        bad(r, "disturbed", "a share");
    const json_t *peak = json_object_get(root, "peak_flop_per_s");
    machine->peak_fp32 = read_rate(r, peak, "fp32", true);
    machine->peak_bf16 = read_rate(r, peak, "bf16", true);
    machine->peak_fp64 = read_rate(r, peak, "fp64", true);
    read_levels(r, root, machine);
    read_shapes(r, root, machine);
}

tl_status tl_machine_file_parse(const char *text, size_t length, const char *name, tl_machine_file *file,
                                tl_error *error) {
    json_error_t where;
    tl_machine_file found = {0};
    reader r = {name, error, TL_OK};
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s:%d:%d: %s: no measurement of ours; measure again with `tally machine --refresh'", name,
                       where.line, where.column, where.text);
    if (json_is_object(root))
        read_all(&r, root, &found);
    else
        bad(&r, "schema", "there");
    json_decref(root);
    if (r.status == TL_OK)
        *file = found;
    return r.status;
}
