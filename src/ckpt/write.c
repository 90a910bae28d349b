/* ckpt/write.c: a checkpoint that is either there whole or not there. */
#include "ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/transfer.h"
#include "tensor/ctx.h"

/* Numbers and texts of the metadata. */
enum { OWN_TEXTS = 16, LONGEST_NUMBER = 32 };

typedef struct header {
    char *bytes;
    int64_t length, values;
} header;

typedef struct texts {
    tl_safetensors_text *list;
    int64_t count;
    char numbers[OWN_TEXTS][LONGEST_NUMBER];
    char **keys; /* "PART.KEY": as many as the parts have texts */
    int64_t n_keys;
    char *checksums;
} texts;

static void put_unsigned(texts *t, const char *key, uint64_t value) {
    char *number = t->numbers[t->count];
    snprintf(number, LONGEST_NUMBER, "%" PRIu64, value);
    t->list[t->count++] = (tl_safetensors_text){key, number};
}

static void put_real(texts *t, const char *key, double value) {
    char *number = t->numbers[t->count];
    snprintf(number, LONGEST_NUMBER, "%.17g", value);
    t->list[t->count++] = (tl_safetensors_text){key, number};
}

static void put_state(texts *t, const tl_ckpt_state *s) {
    t->list[t->count++] = (tl_safetensors_text){"tally.header", "0000000000000000"};
    t->list[t->count++] = (tl_safetensors_text){"tally.format", TL_CKPT_FORMAT};
    put_unsigned(t, "tally.step", (uint64_t)s->step);
    put_unsigned(t, "tally.optimizer_steps", (uint64_t)s->optimizer_steps);
    put_unsigned(t, "tally.total_steps", (uint64_t)s->total_steps);
    put_unsigned(t, "tally.data_position", s->data_position);
    put_unsigned(t, "tally.seed_init", s->seed_init);
    put_unsigned(t, "tally.seed_data", s->seed_data);
    put_unsigned(t, "tally.seed_dropout", s->seed_dropout);
    put_unsigned(t, "tally.dropout_position", s->dropout_position);
    if (s->has_loss)
        put_real(t, "tally.loss", s->loss);
    if (s->has_validation_loss)
        put_real(t, "tally.validation_loss", s->validation_loss);
    t->list[t->count++] = (tl_safetensors_text){"tally.xxh3_64", t->checksums};
}

static bool put_parts(texts *t, const tl_ckpt_contents *c) {
    for (int p = 0; p < c->n_parts; p++)
        for (int64_t i = 0; i < c->parts[p].n_texts; i++) {
            const tl_safetensors_text *text = &c->parts[p].texts[i];
            size_t bytes = strlen(c->parts[p].name) + strlen(text->key) + 2;
            char *key = malloc(bytes);
            if (!key)
                return false;
            snprintf(key, bytes, "%s.%s", c->parts[p].name, text->key);
            t->keys[t->n_keys++] = key;
            t->list[t->count++] = (tl_safetensors_text){key, text->value};
        }
    return true;
}

static void free_texts(texts *t) {
    for (int64_t i = 0; i < t->n_keys; i++)
        free(t->keys[i]);
    free(t->keys);
    free(t->list);
    free(t->checksums);
}

static bool make_texts(texts *t, const tl_ckpt_contents *c, const tl_ckpt_list *list, const tl_ckpt_state *state) {
    size_t more = 0;
    for (int p = 0; p < c->n_parts; p++)
        more += (size_t)c->parts[p].n_texts;
    t->list = calloc(OWN_TEXTS + more, sizeof *t->list);
    t->keys = calloc(more + 1, sizeof *t->keys);
    t->checksums = malloc((size_t)list->count * (TL_CKPT_DIGITS + 1) + 1); /* 16 digits and a blank each */
    if (!t->list || !t->keys || !t->checksums)
        return false;
    t->checksums[0] = '\0';
    for (int64_t i = 0; i < list->count; i++) {
        const tl_ckpt_entry *e = &list->entries[i];
        uint64_t hash = tl_ckpt_hash(tl_tensor_data((tl_tensor *)(uintptr_t)e->tensor), (size_t)e->bytes);
        snprintf(t->checksums + i * (TL_CKPT_DIGITS + 1), TL_CKPT_DIGITS + 2, "%016" PRIx64 " ", hash);
    }
    put_state(t, state);
    return put_parts(t, c);
}

static tl_safetensors_item *make_items(const tl_ckpt_list *list) {
    tl_safetensors_item *items = calloc((size_t)list->count + 1, sizeof *items);
    for (int64_t i = 0; items && i < list->count; i++) {
        const tl_ckpt_entry *e = &list->entries[i];
        items[i] = (tl_safetensors_item){
            .name = e->name, .dtype = tl_tensor_dtype(e->tensor), .ndim = tl_tensor_ndim(e->tensor)};
        for (int d = 0; d < items[i].ndim; d++)
            items[i].dim[d] = tl_tensor_shape(e->tensor)->dim[d].size;
    }
    return items;
}

/* The checksum of all header bytes, taken with zeros in its own place. */
static void seal(header *h) {
    char digits[TL_CKPT_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016" PRIx64, tl_ckpt_hash(h->bytes, (size_t)h->length));
    memcpy(h->bytes + 8 + sizeof TL_CKPT_START - 1, digits, TL_CKPT_DIGITS);
}

static tl_status make_header(const tl_ckpt_contents *c, const tl_ckpt_list *list, const tl_ckpt_state *state, header *h,
                             tl_error *error) {
    texts *t = calloc(1, sizeof *t);
    tl_safetensors_item *items = make_items(list);
    tl_status status = TL_OK;
    if (t && items && make_texts(t, c, list, state)) {
        h->bytes = tl_safetensors_header(items, list->count, t->list, t->count, &h->length, &h->values, error);
        status = h->bytes ? TL_OK : error ? error->status : TL_ERR_MEMORY;
    } else {
        status = tl_fail(error, TL_ERR_MEMORY, "no memory for the header of a checkpoint");
    }
    if (status == TL_OK)
        seal(h);
    if (t)
        free_texts(t);
    free(t);
    free(items);
    return status;
}

static tl_status write_file(const char *path, const header *h, const tl_ckpt_list *list, tl_error *error) {
    tl_safetensors_writer *w = tl_safetensors_begin_header(path, h->bytes, h->length, h->values, error);
    tl_status status = TL_OK;
    if (!w)
        return error ? error->status : TL_ERR_IO;
    for (int64_t i = 0; i < list->count && status == TL_OK; i++)
        status = tl_safetensors_write(w, tl_tensor_data((tl_tensor *)(uintptr_t)list->entries[i].tensor),
                                      list->entries[i].bytes, error);
    return tl_safetensors_end(w, status, error);
}

int64_t tl_ckpt_step(const tl_ckpt_contents *c, const tl_ckpt_state *state) {
    int64_t updates = c->optimizer ? tl_optimizer_steps(c->optimizer) : 0;
    return state->step > updates ? state->step : updates;
}

typedef struct saving {
    const char *path;
    const tl_ckpt_contents *contents;
    const tl_ckpt_state *state;
    tl_error *error;
} saving;

static tl_status put_values(void *self, char *block, int64_t block_bytes) {
    const saving *s = self;
    tl_ckpt_list list;
    header h = {0};
    (void)block, (void)block_bytes;
    tl_status status = tl_ckpt_list_make(s->contents, &list, s->error);
    if (status == TL_OK)
        status = make_header(s->contents, &list, s->state, &h, s->error);
    if (status == TL_OK)
        status = write_file(s->path, &h, &list, s->error);
    free(h.bytes);
    tl_ckpt_list_free(&list);
    return status;
}

tl_status tl_ckpt_save(const char *path, const tl_ckpt_contents *c, const tl_ckpt_state *state, tl_error *error) {
    tl_ctx *ctx = c->ctx;
    tl_error own = {TL_OK, ""};
    if (tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta has no values to save");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    if (!c->optimizer)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "a checkpoint needs the run's optimizer; tl_weights_save writes a net alone");
    tl_ckpt_state all = *state;
    all.optimizer_steps = tl_optimizer_steps(c->optimizer);
    all.step = tl_ckpt_step(c, state);
    all.seed_init = ctx->seed_init;
    all.seed_data = ctx->seed_data;
    all.seed_dropout = ctx->seed_dropout;
    all.dropout_position = ctx->random_position;
    saving s = {path, c, &all, &own};
    tl_status status = tl_transfer_save(ctx, put_values, &s);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", own.message);
}
