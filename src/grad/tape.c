/* The tape: what was recorded. Nodes live in chunks that go all at once. */
#include "grad/tape.h"

#include <string.h>

enum { CHUNK = 256 << 10 };

void *tl_tape_alloc(tl_ctx *ctx, size_t bytes) {
    struct tl_tape *tape = ctx->tape;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!tape->chunks || tape->chunks->size - tape->chunks->used < bytes) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        /* Not cleared: a chunk that stayed from the last step is not either, and a region's tape takes one for each layer. */
        tl_chunk *chunk = ctx->allocator.alloc(ctx->allocator.self, sizeof *chunk + size, 16, TL_ALLOC_HOST);
        if (!chunk) {
            tl_ctx_fail(ctx, TL_ERR_MEMORY, "no memory for %zu bytes of tape", size);
            return NULL;
        }
        chunk->used = 0;
        chunk->size = size;
        chunk->next = tape->chunks;
        tape->chunks = chunk;
    }
    void *pointer = tape->chunks->bytes + tape->chunks->used;
    tape->chunks->used += bytes;
    return pointer;
}

static tl_node *node_new(tl_ctx *ctx, const tl_sig *sig, int n_kept) {
    size_t n_in = (size_t)sig->n_in, n_out = (size_t)sig->n_out;
    tl_node *node = tl_tape_alloc(ctx, sizeof *node);
    if (!node)
        return NULL;
    memset(node, 0, sizeof *node);
    node->edges = tl_tape_alloc(ctx, n_in * sizeof *node->edges);
    node->in_shape = tl_tape_alloc(ctx, n_in * sizeof *node->in_shape);
    node->in_dtype = tl_tape_alloc(ctx, n_in * sizeof *node->in_dtype);
    node->needs = tl_tape_alloc(ctx, n_in * sizeof *node->needs);
    node->kept = tl_tape_alloc(ctx, (size_t)n_kept * sizeof *node->kept);
    node->gout = tl_tape_alloc(ctx, n_out * sizeof *node->gout);
    node->attr = tl_tape_alloc(ctx, sig->op->attr_size);
    if (ctx->error.status != TL_OK)
        return NULL;
    memset(node->edges, 0, n_in * sizeof *node->edges);
    memset(node->gout, 0, n_out * sizeof *node->gout);
    if (sig->op->attr_size)
        memcpy(node->attr, sig->attr, sig->op->attr_size);
    return node;
}

void tl_node_keep(tl_node *node, tl_tensor *t, int slot) {
    tl_storage *storage = t->storage;
    tl_tensor_ref(t);
    storage->saved++;
    if (storage->category == TL_WORK)
        tl_storage_retag(storage, TL_SAVED);
    node->kept[node->n_kept++] = (tl_kept){.tensor = t, .version = storage->version, .slot = (uint8_t)slot};
}

static void unkeep(tl_tensor *t) {
    tl_storage *storage = t->storage;
    storage->saved--;
    bool held = t->refs > 1 || storage->refs > 1;
    if (storage->saved == 0 && storage->category == TL_SAVED && held)
        tl_storage_retag(storage, TL_WORK);
    tl_tensor_unref(t);
}

void tl_node_drop(tl_node *node, int kept) {
    unkeep(node->kept[kept].tensor);
    node->kept[kept] = node->kept[--node->n_kept];
}

void tl_node_let_go(tl_node *node) {
    for (int i = 0; i < node->n_kept; i++)
        unkeep(node->kept[i].tensor);
    node->n_kept = 0;
    if (node->region_run)
        tl_region_let_go(node);
    for (int i = 0; i < node->n_out; i++)
        if (node->gout[i]) {
            tl_tensor_unref(node->gout[i]);
            node->gout[i] = NULL;
        }
    for (int i = 0; i < node->n_in; i++)
        if (node->edges[i].leaf) {
            tl_tensor_unref(node->edges[i].leaf);
            node->edges[i].leaf = NULL;
        }
}

/* Of a region's tape nothing is noted: it is short enough to be looked through (backward.c). */
void tl_tape_note_use(tl_ctx *ctx, tl_tensor *leaf, int64_t node) {
    const struct tl_tape *tape = ctx->tape;
    if (tape->outer || leaf->first_use_generation == tape->generation)
        return;
    leaf->first_use_generation = tape->generation;
    leaf->first_use = (uint32_t)node;
}

static tl_status record(tl_ctx *ctx, const tl_sig *sig, const tl_saves *saves, tl_tensor *const out[]) {
    struct tl_tape *tape = ctx->tape;
    int n_kept = __builtin_popcount(saves->in) + __builtin_popcount(saves->out);
    if (!tl_host_grow(ctx, &tape->nodes, sizeof *tape->nodes, tape->count + 1, &tape->capacity))
        return ctx->error.status;
    tl_node *node = node_new(ctx, sig, n_kept);
    if (!node)
        return ctx->error.status;
    node->op = sig->op;
    node->module = ctx->place.module;
    node->region = ctx->place.region;
    node->site = sig->site;
    node->user_site = ctx->place.user_site;
    node->n_in = sig->n_in;
    node->n_out = sig->n_out;
    for (int i = 0; i < sig->n_in; i++) {
        tl_tensor *t = sig->in[i];
        node->in_shape[i] = t->shape;
        node->in_dtype[i] = t->dtype;
        node->needs[i] = node->edges[i].wanted = sig->needs_grad[i];
        if (!sig->needs_grad[i])
            continue;
        if (t->generation == tape->generation) {
            node->edges[i].node = t->node;
            node->edges[i].output = t->node_output;
        } else {
            tl_tensor_ref(t);
            node->edges[i].leaf = t;
            tl_tape_note_use(ctx, t, tape->count);
        }
    }
    for (int i = 0; i < sig->n_in; i++)
        if (saves->in >> i & 1)
            tl_node_keep(node, sig->in[i], i);
    for (int j = 0; j < sig->n_out; j++) {
        if (saves->out >> j & 1)
            tl_node_keep(node, out[j], TL_MAX_IO + j);
        if (!sig->out[j].hidden && tl_dtype_is_float(out[j]->dtype)) {
            out[j]->node = (uint32_t)tape->count;
            out[j]->node_output = (uint32_t)j;
            out[j]->generation = tape->generation;
        }
    }
    tape->nodes[tape->count++] = node;
    return TL_OK;
}

static bool is_valid(const tl_ctx *ctx, const tl_tensor *t) {
    return ctx->tape && t->generation == ctx->tape->generation;
}

void tl_tape_clear(tl_ctx *ctx) {
    struct tl_tape *tape = ctx->tape;
    if (!tape)
        return;
    for (int64_t i = tape->count; i-- > 0;)
        tl_node_let_go(tape->nodes[i]);
    tape->count = tape->late_count = 0;
    tape->generation = ++tape->newest;
    while (tape->chunks && tape->chunks->next) { /* one chunk stays for the next step */
        tl_chunk *chunk = tape->chunks;
        tape->chunks = chunk->next;
        tl_host_free(ctx, chunk, sizeof *chunk + chunk->size);
    }
    if (tape->chunks)
        tape->chunks->used = 0;
}

static void close_tape(tl_ctx *ctx) {
    while (ctx->tape) {
        struct tl_tape *tape = ctx->tape, *inner = tape->inner;
        tl_tape_clear(ctx);
        if (tape->chunks)
            tl_host_free(ctx, tape->chunks, sizeof *tape->chunks + tape->chunks->size);
        tl_host_free(ctx, tape->nodes, (size_t)tape->capacity * sizeof *tape->nodes);
        tl_host_free(ctx, tape->late, (size_t)tape->late_capacity * sizeof *tape->late);
        tl_host_free(ctx, tape, sizeof *tape);
        ctx->tape = inner;
    }
}

static const tl_tape_hooks hooks = {record, is_valid, tl_region_meet, close_tape};

tl_status tl_record(tl_ctx *ctx, bool on) {
    if (on && !ctx->tape) {
        ctx->tape = tl_host_alloc(ctx, sizeof *ctx->tape);
        if (!ctx->tape)
            return ctx->error.status;
        ctx->tape->generation = ctx->tape->newest = 1;
        ctx->tape_hooks = &hooks;
    }
    ctx->recording = on;
    return TL_OK;
}

bool tl_is_recording(const tl_ctx *ctx) { return ctx->recording; }

int64_t tl_tape_nodes(const tl_ctx *ctx) { return ctx->tape ? ctx->tape->count : 0; }
