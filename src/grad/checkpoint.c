/* Recompute: a region keeps its inputs, and in backward runs again on a tape of its own, which is then walked. The gradients
 * that the outer tape has gathered for an input so far move into the inner one first, so that they are added up in the
 * order, and so with the bits, that they would have without the region. */
#include "grad/tape.h"

#include <string.h>

struct tl_region {
    tl_ctx *ctx;
    tl_region_function *function;
    const void *user;
    uint64_t random_first, random_next; /* the dropout stream before and after the first run */
    tl_dtype autocast;                  /* as the first run had it; f32: off */
    tl_shape *out_shape;
    tl_dtype *out_dtype;
    struct away *away; /* one an input; NULL: all are kept where they are */
};

/* An input in the host's memory until backward. On meta there are no bytes to hold. */
struct away {
    bool is;
    void *bytes;
    size_t size;
    tl_shape shape;
    tl_dtype dtype;
};

/* No ops of the list: they name a region, and its inputs on the inner tape, in messages. */
static const tl_op region_op = {.name = "checkpoint"}, input_op = {.name = "checkpoint input"};

static tl_status meet(tl_ctx *ctx, const char *name, const char *site, tl_tensor *t) {
    char text[200];
    ctx->region_wants = true;
    if (t->generation != ctx->tape->generation) { /* a leaf: its gradient is found again */
        tl_tape_note_use(ctx, t, ctx->tape->count - 1);
        return TL_OK;
    }
    return tl_ctx_fail(
        ctx, TL_ERR_STATE,
        "%s (%s) reads %s of the expression around a checkpointed region; its gradient would go missing, "
        "name it among the region's inputs",
        name, site, tl_tensor_text(t, text, sizeof text));
}

tl_status tl_region_meet(tl_ctx *ctx, const tl_sig *sig, tl_tensor *t) {
    return meet(ctx, sig->op->name, sig->site, t);
}

static tl_tensor *alias_of(tl_ctx *ctx, const tl_tensor *t) {
    return tl_tensor_on(ctx, t->storage, t->dtype, &t->shape, t->stride, t->offset);
}

/* ---- forward ---- */

static tl_node *region_node(tl_ctx *ctx, int n_in, int n_out, size_t user_bytes) {
    size_t in = (size_t)n_in, out = (size_t)n_out;
    tl_node *node = tl_tape_alloc(ctx, sizeof *node);
    if (!node)
        return NULL;
    memset(node, 0, sizeof *node);
    struct tl_region *region = tl_tape_alloc(ctx, sizeof *region);
    node->edges = tl_tape_alloc(ctx, in * sizeof *node->edges);
    node->kept = tl_tape_alloc(ctx, in * sizeof *node->kept);
    node->gout = tl_tape_alloc(ctx, out * sizeof *node->gout);
    void *user = tl_tape_alloc(ctx, user_bytes);
    if (ctx->error.status != TL_OK)
        return NULL;
    memset(region, 0, sizeof *region);
    region->ctx = ctx;
    region->user = user;
    region->out_shape = tl_tape_alloc(ctx, out * sizeof *region->out_shape);
    region->out_dtype = tl_tape_alloc(ctx, out * sizeof *region->out_dtype);
    if (ctx->error.status != TL_OK)
        return NULL;
    memset(node->edges, 0, in * sizeof *node->edges);
    memset(node->gout, 0, out * sizeof *node->gout);
    node->region_run = region;
    node->op = &region_op;
    node->n_in = n_in;
    node->n_out = n_out;
    return node;
}

/* Only what the region's caller made: a parameter stays where it is. */
static bool send_away(tl_ctx *ctx, tl_node *node, const tl_tensor *t, int i) {
    struct tl_region *region = node->region_run;
    if (!region->away && !(region->away = tl_tape_alloc(ctx, (size_t)node->n_in * sizeof *region->away)))
        return false;
    if (i == 0)
        memset(region->away, 0, (size_t)node->n_in * sizeof *region->away);
    struct away *away = &region->away[i];
    if (node->edges[i].leaf || !node->edges[i].wanted || !tl_tensor_is_contiguous(t))
        return false;
    away->size = (size_t)tl_tensor_count(t) * (size_t)tl_dtype_bytes(t->dtype);
    away->shape = t->shape;
    away->dtype = t->dtype;
    if (!tl_ctx_is_meta(ctx) && away->size > 0) {
        if (!(away->bytes = tl_host_alloc(ctx, away->size)))
            return false;
        memcpy(away->bytes, tl_tensor_data(t), away->size);
    }
    away->is = true;
    return true;
}

void tl_region_let_go(tl_node *node) {
    struct away *away = node->region_run->away;
    for (int i = 0; away && i < node->n_in; i++) {
        tl_host_free(node->region_run->ctx, away[i].bytes, away[i].size);
        away[i].bytes = NULL;
    }
}

static tl_tensor *kept_of(tl_ctx *ctx, const tl_node *node, int i) {
    const struct away *away = node->region_run->away;
    if (away && away[i].is) {
        tl_tensor *t = tl_empty(ctx, away[i].dtype, away[i].shape, TL_WORK);
        if (t && away[i].bytes)
            memcpy(tl_tensor_data(t), away[i].bytes, away[i].size);
        return t;
    }
    for (int k = 0; k < node->n_kept; k++)
        if (node->kept[k].slot == i)
            return node->kept[k].tensor;
    return NULL;
}

/* The node with its inputs kept, on the tape already: what the region does may not touch them. */
static tl_node *begin_node(tl_ctx *ctx, const void *user, size_t user_bytes, tl_tensor *const in[], int n_in, int n_out,
                           const char *site) {
    struct tl_tape *tape = ctx->tape;
    if (!tl_host_grow(ctx, &tape->nodes, sizeof *tape->nodes, tape->count + 1, &tape->capacity))
        return NULL;
    tl_node *node = region_node(ctx, n_in, n_out, user_bytes);
    if (!node)
        return NULL;
    if (user_bytes)
        memcpy((void *)(uintptr_t)node->region_run->user, user, user_bytes);
    else
        node->region_run->user = user;
    node->module = ctx->place.module;
    node->region = ctx->place.region;
    node->site = site;
    node->user_site = ctx->phase_site ? ctx->phase_site : ctx->module_depth > 0 ? ctx->module_stack[0].site : site;
    for (int i = 0; i < n_in; i++) {
        tl_edge *edge = &node->edges[i];
        edge->wanted = tl_tensor_needs_grad(in[i]);
        if (edge->wanted && in[i]->generation == tape->generation) {
            edge->node = in[i]->node;
            edge->output = in[i]->node_output;
        } else if (edge->wanted) {
            tl_tensor_ref(in[i]);
            edge->leaf = in[i];
            tl_tape_note_use(ctx, in[i], tape->count);
        }
        if (!ctx->offload || !send_away(ctx, node, in[i], i))
            tl_node_keep(node, in[i], i);
    }
    tape->nodes[tape->count++] = node;
    return node;
}

/* Takes the outputs out of the scope that ends, or gives them back if one is missing. */
static tl_status take_outputs(tl_ctx *ctx, tl_tensor *made[], int n_out, const char *site) {
    for (int j = 0; j < n_out && ctx->error.status == TL_OK; j++)
        if (!made[j] || made[j]->ctx != ctx)
            tl_ctx_fail(ctx, TL_ERR_STATE, "checkpoint (%s): its function made no output %d", site, j);
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    for (int j = 0; j < n_out; j++)
        tl_keep(made[j]);
    return TL_OK;
}

/* Runs the function in a scope of its own on handles of its own, which are on no tape. */
static tl_status run_once(tl_ctx *ctx, tl_region_function *function, const void *user, tl_tensor *const in[], int n_in,
                          tl_tensor *out[], int n_out, const char *site) {
    tl_tensor *alias[TL_MAX_IO], *made[TL_MAX_IO] = {0};
    tl_scope_begin(ctx);
    tl_status status = ctx->error.status;
    for (int i = 0; i < n_in && status == TL_OK; i++) {
        alias[i] = in[i]->requires_grad ? in[i] : alias_of(ctx, in[i]);
        status = ctx->error.status;
    }
    if (status == TL_OK)
        status = function(ctx, user, alias, made);
    if (status == TL_OK || ctx->error.status != TL_OK)
        status = take_outputs(ctx, made, n_out, site);
    else
        status = tl_ctx_fail(ctx, status, "checkpoint (%s): its function failed without a message", site);
    tl_scope_end(ctx);
    if (status != TL_OK)
        return status;
    for (int j = 0; j < n_out; j++) {
        out[j] = alias_of(ctx, made[j]);
        tl_free(made[j]);
    }
    if (ctx->error.status != TL_OK)
        for (int j = 0; j < n_out; j++) {
            tl_release(out[j]);
            out[j] = NULL;
        }
    return ctx->error.status;
}

static void drop_node(tl_ctx *ctx, int64_t index) {
    struct tl_tape *tape = ctx->tape;
    while (tape->count > index)
        tl_node_let_go(tape->nodes[--tape->count]);
}

static void finish_node(const struct tl_tape *tape, tl_node *node, int64_t index, tl_tensor *out[]) {
    for (int j = 0; j < node->n_out; j++) {
        node->region_run->out_shape[j] = out[j]->shape;
        node->region_run->out_dtype[j] = out[j]->dtype;
        if (!tl_dtype_is_float(out[j]->dtype))
            continue;
        out[j]->node = (uint32_t)index;
        out[j]->node_output = (uint32_t)j;
        out[j]->generation = tape->generation;
    }
}

static tl_dtype autocast_of(const tl_ctx *ctx) { return ctx->cast_inputs ? ctx->autocast : TL_F32; }

static tl_status run_recorded(tl_ctx *ctx, tl_region_function *function, tl_node *node, tl_tensor *const in[],
                              tl_tensor *out[]) {
    struct tl_tape *tape = ctx->tape;
    int64_t index = tape->count - 1;
    uint64_t generation = tape->generation;
    bool in_region = ctx->in_region, wants_before = ctx->region_wants;
    node->region_run->function = function;
    node->region_run->random_first = ctx->random_position;
    node->region_run->autocast = autocast_of(ctx);
    ctx->recording = false;
    ctx->in_region = true;
    ctx->region_wants = false;
    tl_status status = run_once(ctx, function, node->region_run->user, in, node->n_in, out, node->n_out, node->site);
    bool wants = ctx->region_wants;
    ctx->in_region = in_region;
    ctx->region_wants = wants_before;
    ctx->recording = true;
    if (tape->generation != generation) /* the node went with the rest */
        return tl_ctx_fail(ctx, TL_ERR_STATE, "the function of a checkpointed region cleared the tape");
    if (status == TL_OK && tape->count != index + 1)
        status = tl_ctx_fail(ctx, TL_ERR_STATE, "checkpoint (%s): its function records by itself", node->site);
    for (int i = 0; i < node->n_in; i++)
        wants |= node->edges[i].wanted;
    node->region_run->random_next = ctx->random_position;
    if (status != TL_OK || !wants)
        drop_node(ctx, index);
    else
        finish_node(tape, node, index, out);
    if (status != TL_OK)
        for (int j = 0; j < node->n_out; j++)
            out[j] = NULL;
    return status;
}

tl_status tl_checkpoint_(tl_ctx *ctx, tl_region_function *function, const void *user, size_t user_bytes,
                         tl_tensor *const in[], int n_in, tl_tensor *out[], int n_out, const char *site) {
    for (int j = 0; j < n_out && j < TL_MAX_IO; j++)
        out[j] = NULL;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!function || n_in < 1 || n_in > TL_MAX_IO || n_out < 1 || n_out > TL_MAX_IO)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "checkpoint (%s): a function of %d inputs and %d outputs; 1 to %d of each would work", site,
                           n_in, n_out, TL_MAX_IO);
    for (int i = 0; i < n_in; i++)
        if (!in[i] || in[i]->ctx != ctx)
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "checkpoint (%s): input %d %s", site, i,
                               in[i] ? "belongs to another context" : "is missing");
    for (int i = 0; i < n_in && ctx->in_region && !ctx->recording; i++)
        if (tl_tensor_needs_grad(in[i]) && meet(ctx, "checkpoint", site, in[i]) != TL_OK)
            return ctx->error.status;
    if (!ctx->recording)
        return run_once(ctx, function, user, in, n_in, out, n_out, site);
    tl_node *node = begin_node(ctx, user, user_bytes, in, n_in, n_out, site);
    return node ? run_recorded(ctx, function, node, in, out) : ctx->error.status;
}

/* ---- backward ---- */

/* The node of an input on the inner tape; it takes over what the outer tape has gathered. */
static tl_status add_input(tl_ctx *ctx, struct tl_tape *outer, const tl_node *node, int i) {
    struct tl_tape *inner = ctx->tape;
    if (!tl_host_grow(ctx, &inner->nodes, sizeof *inner->nodes, inner->count + 1, &inner->capacity))
        return ctx->error.status;
    tl_node *input = tl_tape_alloc(ctx, sizeof *input);
    tl_tensor **gout = tl_tape_alloc(ctx, sizeof *gout);
    if (!input || !gout)
        return ctx->error.status;
    memset(input, 0, sizeof *input);
    tl_tensor **slot = &outer->nodes[node->edges[i].node]->gout[node->edges[i].output];
    input->op = &input_op;
    input->site = node->site;
    input->n_out = 1;
    input->gout = gout;
    *gout = *slot;
    *slot = NULL;
    inner->nodes[inner->count++] = input;
    return TL_OK;
}

/* Which inner node stands for input i: that of an earlier input that is the same output; −1: none. */
static int64_t input_of(const tl_node *node, int i) {
    int64_t index = 0;
    for (int k = 0; k <= i; k++) {
        const tl_edge *a = &node->edges[k], *b = &node->edges[i];
        if (!a->wanted || a->leaf)
            continue;
        if (a->node == b->node && a->output == b->output && b->wanted && !b->leaf)
            return index;
        bool first = true;
        for (int j = 0; j < k; j++) {
            const tl_edge *c = &node->edges[j];
            first = first && !(c->wanted && !c->leaf && c->node == a->node && c->output == a->output);
        }
        index += first;
    }
    return -1;
}

static tl_status make_inputs(tl_ctx *ctx, struct tl_tape *outer, const tl_node *node, tl_tensor *in[]) {
    for (int i = 0; i < node->n_in; i++) {
        tl_tensor *kept = kept_of(ctx, node, i);
        if (!kept)
            return ctx->error.status;
        int64_t index = input_of(node, i);
        if (index == ctx->tape->count && add_input(ctx, outer, node, i) != TL_OK)
            return ctx->error.status;
        bool fresh = node->region_run->away && node->region_run->away[i].is;
        in[i] = node->edges[i].leaf || fresh ? kept : alias_of(ctx, kept);
        if (!in[i])
            return ctx->error.status;
        if (index < 0)
            continue;
        in[i]->node = (uint32_t)index;
        in[i]->node_output = 0;
        in[i]->generation = ctx->tape->generation;
    }
    return TL_OK;
}

static tl_status check_again(tl_ctx *ctx, const tl_node *node, tl_tensor *const out[], uint64_t generation) {
    const struct tl_region *region = node->region_run;
    char was[160], is[200];
    if (ctx->tape->generation != generation)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "checkpoint (%s): its function cleared the tape", node->site);
    for (int j = 0; j < node->n_out; j++) {
        if (!out[j] || out[j]->ctx != ctx)
            return tl_ctx_fail(ctx, TL_ERR_STATE, "checkpoint (%s): run again, its function made no output %d",
                               node->site, j);
        if (out[j]->dtype != region->out_dtype[j] || !tl_shape_equal(&out[j]->shape, &region->out_shape[j]))
            return tl_ctx_fail(
                ctx, TL_ERR_STATE, "checkpoint (%s): run again, its output %d is %s; the first time it was %s%s",
                node->site, j, tl_tensor_text(out[j], is, sizeof is), tl_dtype_name(region->out_dtype[j]),
                tl_shape_text(&region->out_shape[j], was, sizeof was));
    }
    if (ctx->random_position != region->random_next)
        return tl_ctx_fail(ctx, TL_ERR_STATE,
                           "checkpoint (%s): run again, it drew %lld random numbers of the dropout stream; the first "
                           "time it drew %lld",
                           node->site, (long long)(ctx->random_position - region->random_first),
                           (long long)(region->random_next - region->random_first));
    return TL_OK;
}

/* The gradients of the region's outputs arrive where the second run made them. */
static tl_status seed(tl_ctx *ctx, tl_node *node, tl_tensor *const out[]) {
    tl_status status = TL_OK;
    for (int j = 0; j < node->n_out && status == TL_OK; j++) {
        tl_tensor *t = out[j], *g = node->gout[j];
        if (!g)
            continue;
        if (t->generation == ctx->tape->generation) {
            tl_tensor **slot = &ctx->tape->nodes[t->node]->gout[t->node_output];
            if (!*slot) { /* handed over: it dies where it would have died without the region */
                *slot = g;
                node->gout[j] = NULL;
                continue;
            }
            status = tl_arrive_at_node(ctx, slot, g, node->site);
        } else if (t->requires_grad)
            status = tl_arrive_at_leaf(ctx, t, g, true, node->site);
        tl_tensor_unref(g);
        node->gout[j] = NULL;
    }
    return status;
}

static tl_status run_again(tl_ctx *ctx, struct tl_tape *outer, tl_node *node, int64_t *n_inputs) {
    const struct tl_region *region = node->region_run;
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO] = {0};
    tl_place place = ctx->place;
    uint64_t position = ctx->random_position, generation = ctx->tape->generation;
    int depth = ctx->module_depth;
    tl_dtype autocast = autocast_of(ctx);
    tl_scope_begin(ctx);
    tl_status status = ctx->error.status == TL_OK ? make_inputs(ctx, outer, node, in) : ctx->error.status;
    *n_inputs = ctx->tape->count;
    if (status == TL_OK) {
        ctx->random_position = region->random_first;
        ctx->recording = ctx->in_region = ctx->place.again = true;
        status = tl_autocast(ctx, region->autocast);
        if (status == TL_OK)
            status = region->function(ctx, region->user, in, out);
        if (tl_autocast(ctx, autocast) != TL_OK && status == TL_OK)
            status = ctx->error.status;
        if (status == TL_OK || ctx->error.status != TL_OK)
            status = ctx->error.status;
        else
            tl_ctx_fail(ctx, status, "checkpoint (%s): its function failed without a message", node->site);
        ctx->recording = ctx->in_region = false;
        if (status == TL_OK)
            status = check_again(ctx, node, out, generation);
        ctx->random_position = position;
        ctx->module_depth = depth;
        ctx->place = place;
        if (status == TL_OK)
            status = seed(ctx, node, out);
    }
    tl_scope_end(ctx);
    return status;
}

static void hand_back(struct tl_tape *outer, const struct tl_tape *inner, const tl_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        int64_t index = input_of(node, i);
        if (index < 0 || !inner->nodes[index]->gout[0])
            continue;
        outer->nodes[node->edges[i].node]->gout[node->edges[i].output] = inner->nodes[index]->gout[0];
        inner->nodes[index]->gout[0] = NULL;
    }
}

tl_status tl_region_walk(tl_ctx *ctx, tl_node *node) {
    struct tl_tape *outer = ctx->tape;
    int64_t n_inputs = 0;
    tl_status status = tl_node_check_kept(ctx, node);
    if (status != TL_OK)
        return status;
    if (!outer->inner && !(outer->inner = tl_host_alloc(ctx, sizeof *outer->inner)))
        return ctx->error.status;
    struct tl_tape *inner = outer->inner;
    inner->generation = inner->newest = outer->newest + 1;
    inner->outer = outer;
    ctx->tape = inner;
    status = run_again(ctx, outer, node, &n_inputs);
    if (status == TL_OK)
        status = tl_tape_walk(ctx, n_inputs);
    if (status == TL_OK)
        hand_back(outer, inner, node);
    tl_tape_clear(ctx);
    outer->newest = inner->newest;
    ctx->tape = outer;
    return status;
}
