/* ckpt/read.c: reading a checkpoint back. What must be in it is known from the run it is read into; the file is held
 * against that, and no number in it is trusted for more than a comparison. */
#include "ckpt/ckpt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "optim/transfer.h"
#include "tensor/ctx.h"

struct tl_ckpt {
    tl_safetensors *file;
    char name[512]; /* for messages */
    tl_ckpt_state state;
    const char *checksums;
};

bool tl_ckpt_is(const tl_safetensors *file) { return tl_safetensors_metadata(file, "tally.format") != NULL; }

/* ---- the header ---- */

static bool read_hash(const char *digits, uint64_t *hash) {
    *hash = 0;
    for (int i = 0; i < TL_CKPT_DIGITS; i++) {
        const char *at = strchr("0123456789abcdef", digits[i]);
        if (digits[i] == '\0' || !at)
            return false;
        *hash = *hash << 4 | (uint64_t)(at - "0123456789abcdef");
    }
    return true;
}

static tl_status damaged(const tl_ckpt *c, const char *what, tl_error *error) {
    return tl_fail(error, TL_ERR_FORMAT, "%s is damaged: %s", c->name, what);
}

static tl_status check_seal(const tl_ckpt *c, tl_error *error) {
    int64_t length = tl_safetensors_header_bytes(c->file), start = 8 + (int64_t)sizeof TL_CKPT_START - 1;
    uint64_t hash = 0;
    char *bytes = malloc((size_t)length);
    if (!bytes)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its header of %lld bytes", c->name, (long long)length);
    tl_status status = tl_safetensors_read_raw(c->file, 0, bytes, length, error);
    bool same = status == TL_OK && length > start + TL_CKPT_DIGITS &&
                memcmp(bytes + 8, TL_CKPT_START, sizeof TL_CKPT_START - 1) == 0 && read_hash(bytes + start, &hash);
    if (same) {
        memset(bytes + start, '0', TL_CKPT_DIGITS);
        same = tl_ckpt_hash(bytes, (size_t)length) == hash;
    }
    free(bytes);
    if (status == TL_OK && !same)
        status = damaged(c, "its header does not match its checksum (changed by another program?)", error);
    return status;
}

static bool read_unsigned(const tl_ckpt *c, const char *key, uint64_t most, uint64_t *value) {
    const char *text = tl_safetensors_metadata(c->file, key);
    char *end = NULL;
    errno = 0;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= most;
}

/* Where it is not there, *there stays false. */
static bool read_real(const tl_ckpt *c, const char *key, bool *there, double *value) {
    const char *text = tl_safetensors_metadata(c->file, key);
    char *end = NULL;
    if (!text)
        return true;
    *there = true;
    *value = strtod(text, &end);
    return end != text && *end == '\0';
}

static tl_status read_state(tl_ckpt *c, tl_error *error) {
    tl_ckpt_state *s = &c->state;
    uint64_t step = 0, updates = 0, total = 0;
    bool ok = read_unsigned(c, "tally.step", INT64_MAX, &step) &&
              read_unsigned(c, "tally.optimizer_steps", INT64_MAX, &updates) &&
              read_unsigned(c, "tally.total_steps", INT64_MAX, &total) &&
              read_unsigned(c, "tally.data_position", UINT64_MAX, &s->data_position) &&
              read_unsigned(c, "tally.seed_init", UINT64_MAX, &s->seed_init) &&
              read_unsigned(c, "tally.seed_data", UINT64_MAX, &s->seed_data) &&
              read_unsigned(c, "tally.seed_dropout", UINT64_MAX, &s->seed_dropout) &&
              read_unsigned(c, "tally.dropout_position", UINT64_MAX, &s->dropout_position) &&
              read_real(c, "tally.loss", &s->has_loss, &s->loss) &&
              read_real(c, "tally.validation_loss", &s->has_validation_loss, &s->validation_loss);
    s->step = (int64_t)step;
    s->optimizer_steps = (int64_t)updates;
    s->total_steps = (int64_t)total;
    c->checksums = tl_safetensors_metadata(c->file, "tally.xxh3_64");
    if (!ok || !c->checksums || strlen(c->checksums) != (size_t)tl_safetensors_count(c->file) * (TL_CKPT_DIGITS + 1))
        return damaged(c, "its metadata are not those of a checkpoint", error);
    return TL_OK;
}

static tl_status check(tl_ckpt *c, tl_error *error) {
    const char *format = tl_safetensors_metadata(c->file, "tally.format");
    char quoted[64];
    if (!format)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s is a safetensors file, but no checkpoint of tally: it holds weights and no state of a run",
                       c->name);
    if (strcmp(format, TL_CKPT_FORMAT) != 0)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s is of the format \"%s\"; this build reads \"%s\"", c->name,
                       tl_quotable(format, strlen(format), quoted, sizeof quoted), TL_CKPT_FORMAT);
    tl_status status = check_seal(c, error);
    return status == TL_OK ? read_state(c, error) : status;
}

tl_ckpt *tl_ckpt_open(const char *path, tl_error *error) {
    tl_ckpt *c = calloc(1, sizeof *c);
    if (!c) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to open a checkpoint");
        return NULL;
    }
    tl_quotable(path, strlen(path), c->name, sizeof c->name);
    c->file = tl_safetensors_open(path, error);
    if (!c->file || check(c, error) != TL_OK) {
        tl_ckpt_close(c);
        return NULL;
    }
    return c;
}

void tl_ckpt_close(tl_ckpt *c) {
    if (!c)
        return;
    tl_safetensors_close(c->file);
    free(c);
}

const tl_ckpt_state *tl_ckpt_state_of(const tl_ckpt *c) { return &c->state; }

const tl_safetensors *tl_ckpt_file(const tl_ckpt *c) { return c->file; }

const char *tl_ckpt_text(const tl_ckpt *c, const char *key) {
    return strncmp(key, "tally.", 6) == 0 ? NULL : tl_safetensors_metadata(c->file, key);
}

/* ---- against the run ---- */

enum { NAMED = 3 }; /* of what differs */

typedef struct differences {
    char text[640];
    size_t used;
    int count;
    tl_status status;
} differences;

static void note(differences *d, tl_status status, const char *format, ...) TL_PRINTF(3, 4);

static void note(differences *d, tl_status status, const char *format, ...) {
    va_list args;
    if (d->count++ == 0)
        d->status = status;
    if (d->count > NAMED)
        return;
    size_t room = sizeof d->text - d->used;
    int n = snprintf(d->text + d->used, room, "%s", d->count > 1 ? "; " : "");
    d->used += n < 0 || (size_t)n >= room ? 0 : (size_t)n;
    va_start(args, format);
    n = vsnprintf(d->text + d->used, sizeof d->text - d->used, format, args);
    va_end(args);
    d->used = n < 0 || (size_t)n >= sizeof d->text - d->used ? sizeof d->text - 1 : d->used + (size_t)n;
}

static char *shape_text(const int64_t *dim, int64_t ndim, char *buffer, size_t bytes) {
    size_t at = (size_t)snprintf(buffer, bytes, "[");
    for (int64_t i = 0; i < ndim && i < TL_MAX_NDIM; i++)
        at += (size_t)snprintf(buffer + at, bytes - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    snprintf(buffer + at, bytes - at, "%s]", ndim > TL_MAX_NDIM ? ", …" : "");
    return buffer;
}

static void compare(const tl_safetensors_tensor *have, const tl_ckpt_entry *want, differences *d) {
    const tl_shape *shape = tl_tensor_shape(want->tensor);
    tl_dtype dtype = tl_tensor_dtype(want->tensor);
    char found[200], wanted[200], name[96];
    int64_t dim[TL_MAX_NDIM];
    tl_quotable(want->name, strlen(want->name), name, sizeof name);
    if (!have) {
        note(d, TL_ERR_SHAPE, "it has no %s", name);
        return;
    }
    bool same = have->ndim == shape->ndim;
    for (int i = 0; i < shape->ndim; i++)
        dim[i] = shape->dim[i].size;
    for (int i = 0; same && i < shape->ndim; i++)
        same = have->dim[i] == dim[i];
    if (!same)
        note(d, TL_ERR_SHAPE, "it holds %s as %s, this run has it as %s", name,
             shape_text(have->dim, have->ndim, found, sizeof found),
             shape_text(dim, shape->ndim, wanted, sizeof wanted));
    else if (have->dtype != dtype)
        note(d, TL_ERR_DTYPE, "it holds %s in %s, this run has it in %s", name, have->format,
             tl_safetensors_word(dtype));
}

static int by_name(const void *a, const void *b) {
    const tl_ckpt_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* What the file has and the run has not. `list` is sorted by name for it. */
static void find_others(const tl_ckpt *c, const tl_ckpt_list *list, bool weights_alone, differences *d) {
    for (int64_t i = 0; i < tl_safetensors_count(c->file); i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(c->file, i);
        tl_ckpt_entry key = {.name = (char *)(uintptr_t)t->name};
        char name[96];
        if (weights_alone && strncmp(t->name, "model.", 6) != 0)
            continue;
        if (!bsearch(&key, list->entries, (size_t)list->count, sizeof key, by_name))
            note(d, TL_ERR_SHAPE, "it holds %s, which this run has not",
                 tl_quotable(t->name, strlen(t->name), name, sizeof name));
    }
}

static tl_status check_run(const tl_ckpt *c, const tl_ckpt_list *list, bool weights_alone, tl_error *error) {
    differences d = {.text = ""};
    tl_ckpt_list sorted = {.count = list->count};
    for (int64_t i = 0; i < list->count; i++)
        compare(tl_safetensors_find(c->file, list->entries[i].name), &list->entries[i], &d);
    sorted.entries = malloc(((size_t)list->count + 1) * sizeof *sorted.entries);
    if (!sorted.entries)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a checkpoint's table of tensors");
    memcpy(sorted.entries, list->entries, (size_t)list->count * sizeof *sorted.entries);
    qsort(sorted.entries, (size_t)list->count, sizeof *sorted.entries, by_name);
    find_others(c, &sorted, weights_alone, &d);
    free(sorted.entries);
    if (d.count == 0)
        return TL_OK;
    if (d.count > NAMED)
        return tl_fail(error, d.status, "%s is of another run (another model, --optim or --precision): %s; and %d more",
                       c->name, d.text, d.count - NAMED);
    return tl_fail(error, d.status, "%s is of another run (another model, --optim or --precision): %s", c->name,
                   d.text);
}

/* ---- values ---- */

static tl_status check_hash(const tl_ckpt *c, const tl_safetensors_tensor *t, uint64_t hash, tl_error *error) {
    int64_t index = t - tl_safetensors_at(c->file, 0);
    uint64_t want = 0;
    char name[96];
    if (read_hash(c->checksums + index * (TL_CKPT_DIGITS + 1), &want) && want == hash)
        return TL_OK;
    return tl_fail(error, TL_ERR_FORMAT, "%s is damaged: the values of %s do not match their checksum", c->name,
                   tl_quotable(t->name, strlen(t->name), name, sizeof name));
}

static tl_status read_values(const tl_ckpt *c, const tl_ckpt_list *list, tl_error *error) {
    tl_status status = TL_OK;
    for (int64_t i = 0; i < list->count && status == TL_OK; i++) {
        const tl_ckpt_entry *e = &list->entries[i];
        const tl_safetensors_tensor *t = tl_safetensors_find(c->file, e->name);
        void *data = tl_tensor_data((tl_tensor *)(uintptr_t)e->tensor);
        status = tl_safetensors_read(c->file, t, 0, data, e->bytes, error);
        if (status == TL_OK)
            status = check_hash(c, t, tl_ckpt_hash(data, (size_t)e->bytes), error);
        e->tensor->storage->version++;
    }
    return status;
}

/* Whether the file has states: a run whose steps were all skipped has them and no update. */
static bool has_states(const tl_ckpt *c) {
    for (int64_t i = 0; i < tl_safetensors_count(c->file); i++)
        if (strncmp(tl_safetensors_at(c->file, i)->name, "optim.", 6) == 0)
            return true;
    return false;
}

typedef struct loading {
    const tl_ckpt *c;
    const tl_ckpt_contents *contents;
    tl_error *error;
} loading;

/* tl_transfer_load has made the states. */
static tl_status take_values(void *self, char *block, int64_t block_bytes) {
    const loading *l = self;
    tl_ckpt_list list;
    (void)block, (void)block_bytes;
    tl_status status = tl_ckpt_list_make(l->contents, &list, l->error);
    if (status != TL_OK)
        return status;
    status = check_run(l->c, &list, l->contents->optimizer == NULL, l->error);
    if (status == TL_OK)
        status = read_values(l->c, &list, l->error);
    tl_ckpt_list_free(&list);
    return status;
}

tl_status tl_ckpt_read(const tl_ckpt *c, const tl_ckpt_contents *contents, tl_ckpt_state *state, tl_error *error) {
    tl_ctx *ctx = contents->ctx;
    tl_error own = {TL_OK, ""};
    loading l = {c, contents, &own};
    if (tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta takes no values");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    tl_status status =
        tl_transfer_load(ctx, contents->optimizer, c->state.optimizer_steps, has_states(c), take_values, &l);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", own.status != TL_OK ? own.message : ctx->error.message);
    *state = c->state;
    if (contents->optimizer) {
        ctx->seed_init = c->state.seed_init;
        ctx->seed_data = c->state.seed_data;
        ctx->seed_dropout = c->state.seed_dropout;
        ctx->random_position = c->state.dropout_position;
    }
    return TL_OK;
}

tl_status tl_ckpt_load(const char *path, const tl_ckpt_contents *contents, tl_ckpt_state *state, tl_error *error) {
    tl_error own = {TL_OK, ""};
    tl_ckpt *c = tl_ckpt_open(path, &own);
    tl_status status = c ? tl_ckpt_read(c, contents, state, &own) : own.status;
    tl_ckpt_close(c);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", own.message);
}

/* XXH3 is not asked for in pieces: a tensor is read whole, as when it is loaded, one at a time. */
tl_status tl_ckpt_verify(const tl_ckpt *c, tl_error *error) {
    tl_status status = TL_OK;
    for (int64_t i = 0; i < tl_safetensors_count(c->file) && status == TL_OK; i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(c->file, i);
        void *data = malloc((size_t)t->bytes + 1);
        if (!data)
            return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for a tensor of %lld bytes", c->name,
                           (long long)t->bytes);
        status = tl_safetensors_read(c->file, t, 0, data, t->bytes, error);
        if (status == TL_OK)
            status = check_hash(c, t, tl_ckpt_hash(data, (size_t)t->bytes), error);
        free(data);
    }
    return status;
}
