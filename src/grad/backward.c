/* The walk: from the loss to the leaves, each op's gradient in the place of the op itself. */
#include "grad/tape.h"

#include <string.h>

/* A gradient arrives at a node's output: the first is held, later ones are added, in place where nothing else looks. */
tl_status tl_arrive_at_node(tl_ctx *ctx, tl_tensor **slot, tl_tensor *g, const char *site) {
    tl_tensor *held = *slot;
    if (!held) {
        tl_tensor_ref(g);
        *slot = g;
        return TL_OK;
    }
    if (held != g && tl_tensor_is_exclusive(held, 1) && !tl_tensor_overlaps_itself(held)) {
        tl_accumulate_(held, g, site);
        return ctx->error.status;
    }
    tl_tensor *sum = g;
    if (held != g && g->scope_index >= 0 && tl_tensor_is_exclusive(g, 1) && !tl_tensor_overlaps_itself(g))
        tl_accumulate_(g, held, site);
    else
        sum = tl_add_(held, g, site);
    if (!sum || ctx->error.status != TL_OK)
        return ctx->error.status;
    tl_tensor_ref(sum);
    *slot = sum;
    tl_tensor_unref(held);
    return TL_OK;
}

/* One hold on it is the scope's that it was made in, or the node's whose gradient it was and who lets go next. */
static bool owns_whole_storage(const tl_tensor *g) {
    return tl_tensor_is_exclusive(g, 1) && g->offset == 0 && tl_tensor_is_contiguous(g) &&
           g->storage->bytes == tl_tensor_count(g) * tl_dtype_bytes(g->dtype);
}

/* A leaf adopts its first gradient: the storage becomes category grad and is booked where the leaf lives. `alone`: it is the
 * gradient of no other input, which would see what is added to it later. */
tl_status tl_arrive_at_leaf(tl_ctx *ctx, tl_tensor *leaf, tl_tensor *g, bool alone, const char *site) {
    if (leaf->grad == g)
        return TL_OK; /* a product added straight into it */
    if (leaf->grad) {
        tl_accumulate_(leaf->grad, g, site);
        return ctx->error.status;
    }
    if (!alone || !owns_whole_storage(g))
        g = tl_copy_(g, site);
    if (!g)
        return ctx->error.status;
    tl_keep(g);
    leaf->grad = g;
    g->storage->region = leaf->storage->region;
    g->storage->module = leaf->storage->module;
    tl_storage_retag(g->storage, TL_GRAD);
    return TL_OK;
}

tl_status tl_node_check_kept(tl_ctx *ctx, const tl_node *node) {
    for (int i = 0; i < node->n_kept; i++)
        if (node->kept[i].tensor->storage->version != node->kept[i].version)
            return tl_ctx_fail(ctx, TL_ERR_STATE, "%s (%s): a tensor saved for backward was changed since",
                               node->op->name, node->site);
    return TL_OK;
}

/* The node's hold on a saved input becomes a handle of the scope's. */
static tl_tensor *take(const tl_saved *saved, int input) {
    tl_node *node = saved->node;
    for (int i = 0; i < node->n_kept; i++) {
        tl_tensor *kept = node->kept[i].tensor;
        if (node->kept[i].slot != input)
            continue;
        tl_tensor *own = tl_tensor_on(saved->ctx, kept->storage, kept->dtype, &kept->shape, kept->stride, kept->offset);
        if (own)
            tl_node_drop(node, i);
        return own;
    }
    return NULL;
}

static tl_status prepare(tl_ctx *ctx, tl_node *node, tl_saved *saved) {
    memset(saved, 0, sizeof *saved);
    saved->ctx = ctx;
    saved->op = node->op;
    saved->attr = node->attr;
    saved->site = node->site;
    saved->n_in = node->n_in;
    saved->n_out = node->n_out;
    saved->in_shape = node->in_shape;
    saved->in_dtype = node->in_dtype;
    saved->needs = node->needs;
    saved->node = node;
    saved->take = take;
    for (int i = 0; i < node->n_kept; i++) {
        const tl_kept *k = &node->kept[i];
        if (k->slot < TL_MAX_IO)
            saved->in[k->slot] = k->tensor;
        else
            saved->out[k->slot - TL_MAX_IO] = k->tensor;
    }
    for (int i = 0; i < node->n_in && !ctx->grads_apart; i++) {
        const tl_tensor *leaf = node->edges[i].leaf;
        if (leaf && leaf->grad && leaf->grad->dtype == leaf->dtype && tl_tensor_is_exclusive(leaf->grad, 1))
            saved->into[i] = leaf->grad;
    }
    return tl_node_check_kept(ctx, node);
}

static bool is_alone(const tl_node *node, tl_tensor *const gin[], int i) {
    for (int j = 0; j < node->n_in; j++)
        if (j != i && gin[j] == gin[i])
            return false;
    return true;
}

static tl_status walk_node(tl_ctx *ctx, tl_node *node) {
    tl_saved saved;
    tl_tensor *gin[TL_MAX_IO] = {0};
    tl_status status = prepare(ctx, node, &saved);
    if (status == TL_OK)
        status = node->op->grad(ctx, &saved, node->gout, gin);
    for (int i = 0; i < node->n_in && status == TL_OK; i++) {
        const tl_edge *edge = &node->edges[i];
        if (!edge->wanted || !gin[i])
            continue;
        if (!tl_shape_equal(&gin[i]->shape, &node->in_shape[i]) || gin[i]->dtype != node->in_dtype[i]) {
            char a[200], b[160];
            return tl_ctx_fail(ctx, TL_ERR_SHAPE, "%s (%s): the gradient of input %d is %s, the input %s%s",
                               node->op->name, node->site, i, tl_tensor_text(gin[i], a, sizeof a),
                               tl_dtype_name(node->in_dtype[i]), tl_shape_text(&node->in_shape[i], b, sizeof b));
        }
        status = edge->leaf
                     ? tl_arrive_at_leaf(ctx, edge->leaf, gin[i], is_alone(node, gin, i), node->site)
                     : tl_arrive_at_node(ctx, &ctx->tape->nodes[edge->node]->gout[edge->output], gin[i], node->site);
    }
    return status;
}

/* ---- leaves whose gradient is whole ---- */

static bool reads(const tl_node *node, const tl_tensor *leaf) {
    for (int i = 0; i < node->n_in; i++)
        if (node->edges[i].leaf == leaf)
            return true;
    return false;
}

static struct tl_tape *first_tape(tl_ctx *ctx) {
    struct tl_tape *tape = ctx->tape;
    while (tape->outer)
        tape = tape->outer;
    return tape;
}

/* Whether nothing on the tapes of regions that is still to be walked reads the leaf; another region might. */
static bool whole_inside(const struct tl_tape *tape, const tl_tensor *leaf) {
    for (; tape->outer; tape = tape->outer)
        for (int64_t i = 0; i < tape->at; i++)
            if (tape->nodes[i]->region_run || reads(tape->nodes[i], leaf))
                return false;
    return true;
}

static tl_status call_done(tl_ctx *ctx, struct tl_tape *first, tl_tensor *leaf) {
    tl_place place = ctx->place;
    const char *phase_site = ctx->phase_site;
    ctx->phase_site = NULL;
    tl_status status = first->done(first->done_user, leaf);
    if (ctx->place.phase != place.phase)
        tl_phase_set(ctx, place.phase);
    ctx->place = place;
    ctx->phase_site = phase_site;
    return status;
}

/* After a node: of the leaves it read, those that no node before it reads. */
static tl_status finish_leaves(tl_ctx *ctx, tl_tensor *const leaf[], int n) {
    struct tl_tape *first = first_tape(ctx);
    tl_status status = TL_OK;
    for (int i = 0; i < n && status == TL_OK; i++) {
        bool last = leaf[i]->first_use_generation == first->generation && leaf[i]->first_use == first->at;
        if (!leaf[i]->grad || !last)
            continue;
        if (whole_inside(ctx->tape, leaf[i]))
            status = call_done(ctx, first, leaf[i]);
        else if (tl_host_grow(ctx, &first->late, sizeof *first->late, first->late_count + 1, &first->late_capacity))
            first->late[first->late_count++] = leaf[i];
        else
            status = ctx->error.status;
    }
    for (; ctx->tape == first && first->late_count > 0 && status == TL_OK; first->late_count--)
        if (first->late[first->late_count - 1]->grad)
            status = call_done(ctx, first, first->late[first->late_count - 1]);
    return status;
}

static int leaves_of(const tl_node *node, tl_tensor *leaf[TL_MAX_IO]) {
    int n = 0;
    for (int i = 0; i < node->n_in; i++) {
        bool known = !node->edges[i].leaf || !node->edges[i].wanted;
        for (int k = 0; k < n && !known; k++)
            known = leaf[k] == node->edges[i].leaf;
        if (!known)
            leaf[n++] = node->edges[i].leaf;
    }
    return n;
}

void tl_backward_each_leaf(tl_ctx *ctx, tl_leaf_function *function, void *user) {
    if (!ctx->tape)
        return;
    ctx->tape->done = function;
    ctx->tape->done_user = user;
}

tl_status tl_tape_walk(tl_ctx *ctx, int64_t first) {
    struct tl_tape *tape = ctx->tape;
    bool waits = first_tape(ctx)->done != NULL;
    for (int64_t i = tape->count; i-- > first;) {
        tl_node *node = tape->nodes[i];
        tl_tensor *leaf[TL_MAX_IO]; /* what holds them is not the node alone: they are parameters */
        int leaves = waits ? leaves_of(node, leaf) : 0;
        bool reached = false;
        tape->at = i;
        for (int j = 0; j < node->n_out; j++)
            reached |= node->gout[j] != NULL;
        tl_status status = TL_OK;
        if (reached) {
            ctx->place.module = node->module;
            ctx->place.region = node->region;
            ctx->phase_site = node->user_site;
            tl_scope_begin(ctx);
            status = node->region_run ? tl_region_walk(ctx, node) : walk_node(ctx, node);
            tl_scope_end(ctx);
        }
        tl_node_let_go(node);
        if (waits && status == TL_OK)
            status = finish_leaves(ctx, leaf, leaves);
        if (status != TL_OK)
            return status;
    }
    return ctx->error.status;
}

tl_status tl_backward(tl_ctx *ctx, tl_tensor *loss, double seed) {
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!loss)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "backward of nothing");
    if (ctx->in_region)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "backward inside a checkpointed region; call it after the region");
    char text[200];
    if (tl_tensor_ctx(loss) != ctx) /* its node would be looked up in the wrong tape */
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "backward of %s, a tensor of another context",
                           tl_tensor_text(loss, text, sizeof text));
    if (tl_tensor_count(loss) != 1)
        return tl_ctx_fail(ctx, TL_ERR_SHAPE, "backward starts from one element, not from %s",
                           tl_tensor_text(loss, text, sizeof text));
    if (!ctx->tape || loss->generation != ctx->tape->generation)
        return tl_ctx_fail(ctx, TL_ERR_STATE,
                           "nothing that leads to %s was recorded (tl_record, tl_tensor_require_grad)",
                           tl_tensor_text(loss, text, sizeof text));
    tl_place before = ctx->place;
    const char *phase_site = ctx->phase_site;
    bool recording = ctx->recording;
    tl_dtype low = ctx->cast_inputs ? ctx->autocast : TL_F32;
    ctx->recording = false;
    ctx->cast_inputs = NULL; /* gradients have the formats of what they belong to */
    tl_scope_begin(ctx);
    tl_node *last = ctx->tape->nodes[loss->node];
    ctx->place.region = last->region;
    tl_tensor *start = tl_empty(ctx, loss->dtype, loss->shape, TL_WORK);
    if (start && tl_fill_(start, seed, last->site)) {
        tl_tensor_ref(start);
        last->gout[loss->node_output] = start;
        tl_release(start);
    }
    tl_status status = ctx->error.status;
    if (status == TL_OK)
        status = tl_tape_walk(ctx, 0);
    tl_scope_end(ctx);
    ctx->place = before;
    ctx->phase_site = phase_site;
    ctx->recording = recording;
    if (low != TL_F32)
        (void)tl_autocast(ctx, low); /* one it took before */
    ctx->tape->done = NULL;
    tl_tape_clear(ctx);
    return status;
}
