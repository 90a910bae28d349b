/* Shared declarations of optimizer updates. */
#include "op/update.h"

#include <string.h>

static const char *role(const tl_sig *sig, int input, int states) {
    (void)sig;
    return input == 0 ? "the gradient" : input == 1 ? "the parameter" : input <= 1 + states ? "a state" : "the copy";
}

tl_status tl_update_infer_mixed(tl_sig *sig, int states) {
    char a[200], b[200];
    const tl_tensor *param = sig->in[1];
    for (int i = 0; i < sig->n_in; i++) {
        const tl_tensor *t = sig->in[i];
        bool state = i > 1 && i <= 1 + states;
        if (!state && !tl_dtype_is_float(t->dtype))
            return tl_sig_fail(sig, TL_ERR_DTYPE, "%s is %s; f64, f32, bf16 or f16 would work", role(sig, i, states),
                               tl_dtype_name(t->dtype));
        if (!state && !tl_shape_equal(&t->shape, &param->shape))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is %s and the parameter %s; equal shapes would work",
                               role(sig, i, states), tl_tensor_text(t, a, sizeof a),
                               tl_tensor_text(param, b, sizeof b));
        for (int j = 0; j < i; j++)
            if (t->storage == sig->in[j]->storage && t->storage->bytes > 0)
                return tl_sig_fail(sig, TL_ERR_STATE, "%s and %s share memory; each needs its own",
                                   role(sig, j, states), role(sig, i, states));
    }
    for (int i = 1; i < sig->n_in; i++) {
        tl_output *out = tl_sig_add(sig, sig->in[i]->dtype, &sig->in[i]->shape);
        out->alias = i;
        out->in_place = true;
    }
    return TL_OK;
}

tl_status tl_update_infer(tl_sig *sig, int states) {
    char a[200], b[200];
    const tl_tensor *param = sig->in[1];
    for (int i = 2; i < 2 + states && i < sig->n_in; i++) {
        const tl_tensor *t = sig->in[i];
        if (!tl_dtype_is_float(t->dtype))
            return tl_sig_fail(sig, TL_ERR_DTYPE, "%s is %s; f64, f32, bf16 or f16 would work", role(sig, i, states),
                               tl_dtype_name(t->dtype));
        if (!tl_shape_equal(&t->shape, &param->shape))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is %s and the parameter %s; equal shapes would work",
                               role(sig, i, states), tl_tensor_text(t, a, sizeof a),
                               tl_tensor_text(param, b, sizeof b));
    }
    return tl_update_infer_mixed(sig, states);
}

void tl_update_cost(const tl_sig *sig, tl_cost *cost, int states, int64_t each) {
    cost->arithmetic = tl_amount_shape(sig->ctx, each, &sig->in[1]->shape);
    for (int i = 0; i < 2 + states; i++)
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[i]->dtype), &sig->in[i]->shape));
    cost->read_set = true;
}

void tl_update_sample(uint64_t *seed, tl_case *c, int states) {
    int64_t size[2] = {tl_sample_below(seed, 6), 1 + tl_sample_below(seed, 40)};
    int copy = (int)tl_sample_below(seed, 2);
    for (int i = 0; i < 2 + states + copy; i++) {
        tl_sample_input(c, TL_F32, i > 1 && i == 1 + states ? TL_FILL_POSITIVE : TL_FILL_NORMAL, 2, size);
        c->in[i].fixed_layout = i > 0;
    }
    c->in_place = true;
    c->n_out = 1 + states + copy;
    c->tolerance = 1e-5;
}

tl_status tl_update_no_options(const char *op, const tl_tensor *param, const char *site) {
    return param ? tl_ctx_fail(param->ctx, TL_ERR_ARGUMENT, "%s (%s): options are missing", op, site) : TL_ERR_ARGUMENT;
}

tl_status tl_update_adam_infer(tl_sig *sig) {
    const tl_adamw_attr *a = TL_ATTR(tl_adamw_attr, sig);
    if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "beta1 is %g and beta2 %g; 0 or more and below 1 would work", a->beta1,
                           a->beta2);
    if (a->step < 1)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "step is %lld; steps count from 1", (long long)a->step);
    if (!(a->epsilon >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "epsilon is %g; 0 or more would work", a->epsilon);
    return TL_OK;
}

void tl_update_adam_sample(uint64_t *seed, tl_adamw_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->lr = 1e-2;
    attr->beta1 = 0.9;
    attr->beta2 = 0.95;
    attr->epsilon = 1e-8;
    attr->weight_decay = tl_sample_below(seed, 2) ? 0.1 : 0;
    attr->step = 1 + tl_sample_below(seed, 1000);
}

void tl_update_adam_attr(const tl_adamw_options *options, tl_adamw_attr *attr) {
    memset(attr, 0, sizeof *attr); /* padding too: attributes are compared and kept as bytes */
    attr->lr = options->lr;
    attr->beta1 = options->beta1;
    attr->beta2 = options->beta2;
    attr->epsilon = options->epsilon;
    attr->weight_decay = options->weight_decay;
    attr->step = options->step;
    attr->cs336 = options->cs336;
}

tl_status tl_update_run(const tl_op *op, tl_tensor *grad, tl_tensor *param, tl_tensor *const states[], int n_states,
                        tl_tensor *copy, const void *attr, const char *site) {
    tl_tensor *in[TL_MAX_IO] = {grad, param}, *out[TL_MAX_IO];
    int n = 2;
    for (int i = 0; i < n_states; i++)
        in[n++] = states[i];
    if (copy)
        in[n++] = copy;
    tl_ctx *ctx = param ? param->ctx : grad ? grad->ctx : copy ? copy->ctx : NULL;
    for (int i = 0; !ctx && i < n_states; i++)
        ctx = states[i] ? states[i]->ctx : NULL;
    if (!ctx)
        return TL_ERR_ARGUMENT;
    bool recording = ctx->recording;
    ctx->recording = false; /* an update is no part of an expression, and a parameter is a leaf that wants a gradient */
    tl_status status = tl_run(ctx, op, in, n, attr, out, n - 1, site);
    ctx->recording = recording;
    for (int i = 0; i < n - 1; i++)
        tl_release(out[i]); /* the caller has handles on all of these */
    return status;
}
