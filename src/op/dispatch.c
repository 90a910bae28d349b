/* The one way to run an op: check, infer, book, allocate, compute, record. */
#include "op/core.h"

#include <stdio.h>
#include <string.h>

static void arrays_of(const tl_tensor *t, tl_array *a) {
    a->data = tl_tensor_data(t);
    a->dtype = t->dtype;
    a->ndim = t->shape.ndim;
    for (int i = 0; i < a->ndim; i++) {
        a->size[i] = t->shape.dim[i].size;
        a->stride[i] = t->stride[i];
    }
}

tl_status tl_args_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel) {
    kernel(&args->call);
    if (args->call.fault)
        return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT, "%s (%s): the index at position %lld is out of range",
                           sig->op->name, sig->site, (long long)args->call.fault - 1);
    return TL_OK;
}

tl_status tl_forward_view(const tl_sig *sig, tl_args *args) {
    (void)sig;
    (void)args;
    return TL_OK;
}

static bool wants_gradients(const tl_sig *sig) {
    for (int i = 0; i < sig->n_in; i++)
        if (sig->needs_grad[i])
            return true;
    return false;
}

/* In-place writes: nothing else may depend on what they change. They have no gradients, so in a recorded expression one
 * would go missing without a word. */
static tl_status check_in_place(const tl_sig *sig, const tl_output *o) {
    const tl_tensor *t = sig->in[o->alias];
    if (t->storage->saved > 0)
        return tl_ctx_fail(sig->ctx, TL_ERR_STATE,
                           "%s (%s) would write into a tensor that backward still needs; copy it first", sig->op->name,
                           sig->site);
    if (wants_gradients(sig))
        return tl_ctx_fail(
            sig->ctx, TL_ERR_STATE,
            "%s (%s) would write into a tensor of a recorded expression; stop recording or copy it first",
            sig->op->name, sig->site);
    if (tl_tensor_overlaps_itself(t))
        return tl_ctx_fail(sig->ctx, TL_ERR_STATE,
                           "%s (%s) would write through a view in which several indices are one element (an expanded "
                           "axis); copy it first",
                           sig->op->name, sig->site);
    for (int i = 0; i < sig->n_in; i++) {
        const tl_tensor *other = sig->in[i];
        if (i == o->alias || other->storage != t->storage || other->storage->bytes == 0)
            continue;
        bool same = other->offset == t->offset && tl_shape_equal(&other->shape, &t->shape);
        for (int d = 0; same && d < t->shape.ndim; d++)
            same = t->shape.dim[d].size <= 1 || t->stride[d] == other->stride[d];
        if (!same)
            return tl_ctx_fail(sig->ctx, TL_ERR_STATE, "%s (%s) would write into memory that its input %d also reads",
                               sig->op->name, sig->site, i);
    }
    return TL_OK;
}

static tl_tensor *output_tensor(const tl_sig *sig, const tl_output *o) {
    tl_ctx *ctx = sig->ctx;
    if (o->alias == TL_NEW)
        return tl_empty(ctx, o->dtype, o->shape, o->category);
    const tl_tensor *from = sig->in[o->alias];
    if (o->in_place)
        return tl_tensor_on(ctx, from->storage, from->dtype, &from->shape, from->stride, from->offset);
    return tl_tensor_on(ctx, from->storage, o->dtype, &o->shape, o->stride, o->offset);
}

static void add_traffic(tl_ctx *ctx, tl_amount *sum, const tl_shape *shape, tl_dtype dtype) {
    int64_t bytes = tl_dtype_bytes(dtype);
    if (!ctx->space) { /* the way of every step that is run: numbers alone, and nearly all fit 63 bits */
        int i = 0;
        while (i < shape->ndim && !__builtin_mul_overflow(bytes, shape->dim[i].size, &bytes))
            i++;
        if (i == shape->ndim) {
            sum->count += (tl_u128)bytes;
            return;
        }
        bytes = tl_dtype_bytes(dtype);
    }
    *sum = tl_amount_add(ctx, *sum, tl_amount_shape(ctx, bytes, shape));
}

static void book(const tl_sig *sig, const tl_cost *cost, bool allocates) {
    tl_ctx *ctx = sig->ctx;
    const tl_amount none = {0};
    tl_op_record *r = tl_ledger_op_begin(ctx);
    if (!r)
        return;
    r->place = ctx->place;
    r->matmul = cost->matmul;
    r->matmul_causal = cost->causal_set ? cost->matmul_causal : cost->matmul;
    r->executed = cost->executed_set ? cost->executed : cost->matmul;
    r->matmul_again = cost->matmul_again;
    r->matmul_causal_again = cost->matmul_causal_again;
    r->arithmetic = cost->arithmetic;
    r->special = cost->special;
    r->sent = cost->sent;
    r->read = cost->read;
    r->written = cost->written;
    r->output = none;
    r->workspace_bytes = cost->workspace.size;
    r->m = cost->m;
    r->n = cost->n;
    r->k = cost->k;
    r->batch = cost->batch;
    r->dtype = sig->n_out ? sig->out[0].dtype : TL_F32;
    if (!cost->read_set)
        for (int i = 0; i < sig->n_in; i++)
            add_traffic(ctx, &r->read, &sig->in[i]->shape, sig->in[i]->dtype);
    if (!cost->written_set)
        for (int i = 0; i < sig->n_out; i++)
            add_traffic(ctx, &r->written, &sig->out[i].shape, sig->out[i].dtype);
    if (allocates && sig->n_out && sig->out[0].alias == TL_NEW)
        add_traffic(ctx, &r->output, &sig->out[0].shape, sig->out[0].dtype);
    tl_ledger_op_end(ctx);
}

/* Field by field: gcc clears a struct of this size with `rep stos`, which takes as long as a one-element op's kernel. */
static void cost_clear(tl_cost *cost) {
    const tl_amount none = {0};
    cost->matmul = cost->matmul_causal = cost->arithmetic = cost->special = none;
    cost->executed = cost->matmul_again = cost->matmul_causal_again = none;
    cost->read = cost->written = cost->sent = none;
    cost->workspace = (tl_dim){0};
    cost->causal_set = cost->executed_set = cost->read_set = cost->written_set = false;
    cost->m = cost->n = cost->k = cost->batch = 0;
}

static tl_status compute(const tl_sig *sig, tl_tensor *const all[], const tl_dim *workspace) {
    tl_ctx *ctx = sig->ctx;
    tl_storage *work = NULL;
    if (workspace->size > 0) {
        work = tl_storage_new(ctx, workspace->size, workspace->formula, TL_WORK);
        if (!work)
            return ctx->error.status;
    }
    tl_status status = TL_OK;
    if (ctx->kernels) {
        tl_args args;
        args.kernels = ctx->kernels;
        args.call.engine = ctx->engine;
        args.call.n_in = sig->n_in;
        args.call.n_out = sig->n_out;
        args.call.attr = sig->attr;
        args.call.work = work ? work->data : NULL;
        args.call.work_bytes = work ? work->bytes : 0;
        args.call.fault = args.call.product_flops = 0;
        for (int i = 0; i < sig->n_in; i++)
            arrays_of(sig->in[i], &args.call.in[i]);
        for (int i = 0; i < sig->n_out; i++)
            arrays_of(all[i], &args.call.out[i]);
        status = sig->op->forward(sig, &args);
    }
    if (work)
        tl_storage_unref(work);
    return status;
}

/* `into`: NULL, or what the first output is written into. */
static tl_status run_sig(tl_sig *sig, tl_tensor *into, tl_tensor *all[]) {
    tl_ctx *ctx = sig->ctx;
    tl_status status = sig->op->infer(sig);
    for (int i = 0; i < sig->n_out && i < TL_MAX_IO; i++)
        all[i] = NULL;
    if (status != TL_OK)
        return status;
    tl_saves saves = {0};
    if (sig->recording)
        sig->op->saves(sig, &saves);
    for (int i = 0; i < sig->n_out; i++)
        if (sig->out[i].in_place && (status = check_in_place(sig, &sig->out[i])) != TL_OK)
            return status;
    if (into && (status = tl_sig_check_into(sig, into)) != TL_OK)
        return status;
    for (int i = 0; i < sig->n_out; i++) {
        all[i] = into && i == 0
                     ? tl_tensor_on(ctx, into->storage, into->dtype, &into->shape, into->stride, into->offset)
                     : output_tensor(sig, &sig->out[i]);
        if (!all[i])
            return ctx->error.status;
    }
    tl_cost cost;
    cost.workspace = (tl_dim){0};
    if (sig->op->cost != tl_cost_free) {
        cost_clear(&cost);
        sig->op->cost(sig, &cost);
        if (ctx->error.status != TL_OK)
            return ctx->error.status;
        book(sig, &cost, !into);
    }
    if ((status = compute(sig, all, &cost.workspace)) != TL_OK)
        return status;
    for (int i = 0; i < sig->n_out; i++)
        if (sig->out[i].in_place || (into && i == 0))
            all[i]->storage->version++;
    if (ctx->watch)
        ctx->watch(ctx->watch_self, sig, all, sig->n_out);
    if (sig->recording)
        return ctx->tape_hooks->record(ctx, sig, &saves, all);
    return ctx->error.status;
}

/* Hidden outputs leave the scope at once: only the tape keeps them. */
static void hand_out(const tl_sig *sig, tl_tensor *all[], tl_tensor *out[], int n_out) {
    int given = 0;
    for (int i = 0; i < sig->n_out; i++) {
        if (!all[i])
            continue;
        if (sig->out[i].hidden || given >= n_out)
            tl_release(all[i]);
        else
            out[given++] = all[i];
    }
}

static tl_status run_as_given(tl_ctx *ctx, const tl_op *op, tl_tensor *const in[], int n_in, const void *attr,
                              tl_tensor *into, tl_tensor *out[], int n_out, const char *site) {
    for (int i = 0; i < n_out; i++)
        out[i] = NULL;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (n_in < 0 || n_in > TL_MAX_IO || n_out > TL_MAX_IO)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s (%s) takes at most %d inputs and outputs", op->name, site,
                           TL_MAX_IO);
    tl_sig sig;
    sig.ctx = ctx;
    sig.op = op;
    sig.attr = attr;
    sig.site = site;
    sig.n_in = n_in;
    sig.n_out = 0;
    bool wants = false;
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s (%s): input %d is missing", op->name, site, i);
        if (in[i]->ctx != ctx)
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s (%s): input %d belongs to another context", op->name, site, i);
        sig.in[i] = in[i];
        sig.needs_grad[i] = ctx->recording && tl_tensor_needs_grad(in[i]);
        if (ctx->in_region && !ctx->recording && !ctx->place.again && tl_tensor_needs_grad(in[i]) &&
            ctx->tape_hooks->meet(ctx, &sig, in[i]) != TL_OK)
            return ctx->error.status;
        wants |= sig.needs_grad[i];
    }
    sig.recording = wants && op->grad != tl_grad_none;
    const struct tl_op *op_before = ctx->place.op;
    const char *site_before = ctx->place.site, *user_site_before = ctx->place.user_site;
    ctx->place.op = op;
    ctx->place.site = site;
    if (ctx->phase_site)
        ctx->place.user_site = ctx->phase_site;
    else
        ctx->place.user_site = ctx->module_depth > 0 ? ctx->module_stack[0].site : site;
    tl_tensor *all[TL_MAX_IO];
    tl_status status = run_sig(&sig, into, all);
    ctx->place.op = op_before;
    ctx->place.site = site_before;
    ctx->place.user_site = user_site_before;
    if (status != TL_OK) {
        for (int i = 0; i < sig.n_out && i < TL_MAX_IO; i++)
            tl_release(all[i]);
        return status;
    }
    hand_out(&sig, all, out, n_out);
    return TL_OK;
}

/* Under autocast an op gets casts of its inputs, which die with the call unless the tape keeps them. */
static tl_status run(tl_ctx *ctx, const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, tl_tensor *into,
                     tl_tensor *out[], int n_out, const char *site) {
    tl_tensor *cast[TL_MAX_IO];
    if (!ctx->cast_inputs || into || ctx->error.status != TL_OK || n_in < 0 || n_in > TL_MAX_IO)
        return run_as_given(ctx, op, in, n_in, attr, into, out, n_out, site);
    for (int i = 0; i < n_out && i < TL_MAX_IO; i++)
        out[i] = NULL;
    tl_status status = ctx->cast_inputs(ctx, op, in, n_in, cast, site);
    if (status == TL_OK)
        status = run_as_given(ctx, op, cast, n_in, attr, NULL, out, n_out, site);
    for (int i = 0; i < n_in; i++)
        if (cast[i] != in[i])
            tl_release(cast[i]);
    return status;
}

tl_status tl_run(tl_ctx *ctx, const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, tl_tensor *out[],
                 int n_out, const char *site) {
    return run(ctx, op, in, n_in, attr, NULL, out, n_out, site);
}

tl_tensor *tl_run_into(const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, tl_tensor *into,
                       const char *site) {
    tl_tensor *out = NULL;
    if (into)
        run(into->ctx, op, in, n_in, attr, into, &out, 1, site);
    return out;
}

tl_tensor *tl_run1(const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, const char *site) {
    tl_tensor *out = NULL;
    for (int i = 0; i < n_in; i++)
        if (in[i]) {
            tl_run(in[i]->ctx, op, in, n_in, attr, &out, 1, site);
            return out;
        }
    return NULL;
}
