/* softmax(scale·x + mask) where a mask, positions, lengths, causality and a window say what each row sees. A hidden column is 0,
 * so the gradient is that of softmax as it is; a row that sees nothing is 0 and so is its gradient. */
#include "op/rows.h"
#include "tally/ops_layers.h"

#include <string.h>

static const tl_masked_softmax_attr *attr_of(const tl_sig *sig) { return TL_ATTR(tl_masked_softmax_attr, sig); }

static tl_status masked_softmax_infer(tl_sig *sig) {
    const tl_masked_softmax_attr *attr = attr_of(sig);
    const tl_tensor *x = sig->in[0];
    char text[200], of[200];
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 2)) || (status = tl_sig_want_float(sig, 0)))
        return status;
    if (attr->has_mask) {
        tl_dtype mask = sig->in[1]->dtype;
        tl_shape shape;
        if (mask != TL_BOOL && mask != x->dtype)
            return tl_sig_fail(sig, TL_ERR_DTYPE, "the mask is %s; bool or %s would work", tl_dtype_name(mask),
                               tl_dtype_name(x->dtype));
        if ((status = tl_sig_broadcast(sig, 0, 1, &shape)))
            return status;
        if (!tl_shape_equal(&shape, &x->shape))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "the mask %s does not broadcast to %s",
                               tl_tensor_text(sig->in[1], text, sizeof text), tl_tensor_text(x, of, sizeof of));
    }
    if (attr->has_sink) {
        int at = 1 + attr->has_mask;
        tl_shape shape;
        const tl_tensor *sink = sig->in[at];
        if (sink->dtype != x->dtype)
            return tl_sig_fail(sig, TL_ERR_DTYPE, "the sink is %s; %s would work", tl_dtype_name(sink->dtype),
                               tl_dtype_name(x->dtype));
        if ((status = tl_sig_broadcast(sig, 0, at, &shape)))
            return status;
        if (!tl_shape_equal(&shape, &x->shape) || sink->shape.ndim < 2 || tl_in_dim(sig, at, -1).size != 1 ||
            tl_in_dim(sig, at, -2).size != 1)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "the sink %s is not one number a matrix of %s, as […,1,1]",
                               tl_tensor_text(sink, text, sizeof text), tl_tensor_text(x, of, sizeof of));
    }
    if (attr->chunk < 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "a chunk of %lld; 0 (none) or more would work",
                           (long long)attr->chunk);
    if (attr->has_positions) {
        int at = 1 + attr->has_mask + attr->has_sink;
        if ((status = tl_sig_want_ndim(sig, 0, 3)) || (status = tl_sig_want_index(sig, at, "the positions")))
            return status;
        tl_shape rows = TL_SHAPE(sig->ctx, tl_in_dim(sig, 0, 0), tl_in_dim(sig, 0, -2));
        if ((status = tl_sig_want_shape(sig, at, &rows, "the positions")))
            return status;
    }
    if (attr->has_lengths) {
        int at = 1 + attr->has_mask + attr->has_sink + attr->has_positions;
        if ((status = tl_sig_want_ndim(sig, 0, 3)) || (status = tl_sig_want_index(sig, at, "the lengths")) ||
            (status = tl_sig_want_vector(sig, at, tl_in_dim(sig, 0, 0), "the tensor of lengths")))
            return status;
    }
    tl_sig_add(sig, x->dtype, &x->shape);
    return TL_OK;
}

static void masked_softmax_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    bool adds = attr_of(sig)->has_mask && sig->in[1]->dtype != TL_BOOL;
    /* scale, [+ mask], − largest, Σ, ÷ Σ; one exp. Hidden columns are counted too: they are written. */
    cost->arithmetic = tl_amount_shape(sig->ctx, adds ? 5 : 4, x);
    cost->special = tl_amount_shape(sig->ctx, 1, x);
    if (attr_of(sig)->has_sink) { /* its −, Σ and e^, a row */
        tl_amount_more(sig->ctx, &cost->arithmetic, 2, x->dim, x->ndim - 1);
        tl_amount_more(sig->ctx, &cost->special, 1, x->dim, x->ndim - 1);
    }
}

static void masked_softmax_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->out = 1;
}

static tl_status masked_softmax_forward(const tl_sig *sig, tl_args *args) {
    if (attr_of(sig)->has_mask)
        tl_array_broadcast(&args->call.in[1], &sig->in[0]->shape);
    if (attr_of(sig)->has_sink)
        tl_array_broadcast(&args->call.in[1 + attr_of(sig)->has_mask], &sig->in[0]->shape);
    return tl_args_run(sig, args, args->kernels->masked_softmax);
}

extern const tl_op tl_op_softmax_backward;

static tl_tensor *back(const tl_saved *saved, tl_tensor *gradient, double scale) {
    tl_softmax_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.scale = scale;
    return tl_run1(&tl_op_softmax_backward, (tl_tensor *[]){tl_saved_out(saved, 0), gradient}, 2, &attr, saved->site);
}

/* With p₀ = 1 − Σp the sink's share of a row, and no gradient of its own: −p₀·Σ p·g, summed over what shares the sink. */
static tl_tensor *sink_gradient(const tl_saved *saved, tl_tensor *gradient, int sink) {
    const char *site = saved->site;
    tl_tensor *p = tl_saved_out(saved, 0), *product = tl_mul_(p, gradient, site);
    tl_tensor *mean = tl_sum_(product, (int[]){-1}, 1, true, site);
    tl_release(product);
    tl_tensor *share = tl_scale_(tl_sum_(p, (int[]){-1}, 1, true, site), 1, -1, site);
    return tl_sum_to(tl_mul_(mean, share, site), tl_saved_shape(saved, sink), site);
}

static tl_status masked_softmax_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_masked_softmax_attr *attr = tl_saved_attr(saved);
    bool mask = attr->has_mask && tl_saved_needs(saved, 1);
    int sink = 1 + attr->has_mask;
    if (attr->has_sink && tl_saved_needs(saved, sink))
        gin[sink] = sink_gradient(saved, gout[0], sink);
    if (tl_saved_needs(saved, 0))
        gin[0] = back(saved, gout[0], attr->scale);
    if (mask) {
        tl_tensor *dmask = attr->scale == 1 && gin[0] ? gin[0] : back(saved, gout[0], 1);
        gin[1] = tl_sum_to(dmask, tl_saved_shape(saved, 1), saved->site);
    }
    return tl_ctx_status(ctx);
}

static void sample(uint64_t seed, tl_case *c, bool scores) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    tl_masked_softmax_attr attr;
    memset(&attr, 0, sizeof attr);
    int mask = (int)tl_sample_below(&seed, 4);
    attr.scale = tl_sample_below(&seed, 2) ? 1 : 0.25;
    attr.has_sink = scores ? 0 : tl_sample_below(&seed, 3) == 0;
    attr.chunk = tl_sample_below(&seed, 3) == 0 ? 1 + tl_sample_below(&seed, 5) : 0;
    attr.has_mask = mask > 0;
    attr.has_lengths = tl_sample_below(&seed, 2);
    attr.causal = tl_sample_below(&seed, 2);
    attr.offset = tl_sample_below(&seed, 5) - 2;
    attr.window_before = tl_sample_below(&seed, 8) - 4;
    attr.window_after = tl_sample_below(&seed, 6) - 3;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    if (mask == 1)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    else if (mask == 2)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){1, size[2]});
    else if (mask == 3) {
        tl_sample_input(c, TL_BOOL, TL_FILL_INDEX, 2, size + 1);
        c->in[1].limit = 2;
    }
    if (attr.has_sink)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){size[0], 1, 1});
    attr.has_positions = tl_sample_below(&seed, 3) == 0;
    if (attr.has_positions) {
        tl_sample_input(c, TL_I64, TL_FILL_INDEX, 2, size);
        c->in[c->n_in - 1].limit = 5;
    }
    if (attr.has_lengths) {
        tl_sample_input(c, TL_I64, TL_FILL_INDEX, 1, size);
        c->in[c->n_in - 1].limit = size[2] + 1;
    }
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

static void masked_softmax_sample(uint64_t seed, tl_case *c) { sample(seed, c, false); }
static void masked_scores_sample(uint64_t seed, tl_case *c) { sample(seed, c, true); }

TL_OP(masked_softmax, sizeof(tl_masked_softmax_attr), masked_softmax_infer, masked_softmax_cost, masked_softmax_saves,
      masked_softmax_forward, masked_softmax_grad, masked_softmax_sample);

static tl_status masked_scores_forward(const tl_sig *sig, tl_args *args) {
    if (attr_of(sig)->has_mask)
        tl_array_broadcast(&args->call.in[1], &sig->in[0]->shape);
    return tl_args_run(sig, args, args->kernels->masked_scores);
}

static void masked_scores_cost(const tl_sig *sig, tl_cost *cost) {
    bool adds = attr_of(sig)->has_mask && sig->in[1]->dtype != TL_BOOL;
    cost->arithmetic = tl_amount_shape(sig->ctx, adds ? 2 : 1, &sig->in[0]->shape);
}

TL_OP(masked_scores, sizeof(tl_masked_softmax_attr), masked_softmax_infer, masked_scores_cost, TL_SAVES_NONE,
      masked_scores_forward, TL_NO_GRAD, masked_scores_sample);

static tl_tensor *run(const tl_op *op, tl_tensor *x, tl_tensor *mask, tl_tensor *lengths,
                      const tl_mask_options *options, const char *site) {
    tl_masked_softmax_attr attr;
    tl_tensor *in[5] = {x};
    int n = 1;
    memset(&attr, 0, sizeof attr);
    attr.scale = options->scale;
    attr.has_mask = mask != NULL;
    attr.has_sink = options->sink != NULL;
    attr.has_positions = options->positions != NULL;
    attr.has_lengths = lengths != NULL;
    attr.chunk = options->chunk;
    attr.causal = options->causal;
    attr.offset = options->offset;
    attr.window_before = options->window_before;
    attr.window_after = options->window_after;
    if (mask)
        in[n++] = mask;
    if (options->sink)
        in[n++] = options->sink;
    if (options->positions)
        in[n++] = options->positions;
    if (lengths)
        in[n++] = lengths;
    return tl_run1(op, in, n, &attr, site);
}

tl_tensor *tl_masked_softmax_(tl_tensor *x, tl_tensor *mask, tl_tensor *lengths, const tl_mask_options *options,
                              const char *site) {
    return run(&tl_op_masked_softmax, x, mask, lengths, options, site);
}

tl_tensor *tl_masked_scores_(tl_tensor *x, tl_tensor *mask, tl_tensor *lengths, const tl_mask_options *options,
                             const char *site) {
    tl_mask_options seen = *options;
    seen.sink = NULL; /* no part of the scores */
    return run(&tl_op_masked_scores, x, mask, lengths, &seen, site);
}
