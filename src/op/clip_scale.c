/* x ·= min(1, max_norm/(√total + 1e-6)), in place, where total is the sum of squares over all gradients. The factor is read
 * on the device, so that a plan on meta books exactly what a run does. */
#include "op/core.h"

#include <string.h>

typedef struct clip_attr {
    double max_norm;
} clip_attr;

static tl_status clip_infer(tl_sig *sig) {
    if (tl_tensor_count(sig->in[1]) != 1 || sig->in[1]->dtype != TL_F64)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the sum of squares must be one f64 value");
    tl_status status = tl_sig_want_float(sig, 0);
    if (status != TL_OK)
        return status;
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    out->alias = 0;
    out->in_place = true;
    return TL_OK;
}

static void clip_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape); /* one × an element; the factor is one value */
}

static tl_status clip_forward(const tl_sig *sig, tl_args *args) {
    double total, factor = 1.0;
    memcpy(&total, args->call.in[1].data, sizeof total);
    double norm = __builtin_sqrt(total), limit = TL_ATTR(clip_attr, sig)->max_norm / (norm + 1e-6);
    if (limit < 1.0)
        factor = limit;
    tl_scale_attr attr = {factor, 0.0};
    args->call.attr = &attr;
    args->call.n_in = 1;
    return tl_args_run(sig, args, args->kernels->scale);
}

static void clip_sample(uint64_t seed, tl_case *c) {
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2,
                    (int64_t[]){1 + tl_sample_below(&seed, 5), tl_sample_below(&seed, 40)});
    tl_sample_input(c, TL_F64, TL_FILL_POSITIVE, 0, NULL);
    c->in[0].fixed_layout = true;
    c->in[1].fixed_dtype = true;
    clip_attr attr = {0.5};
    memcpy(c->attr, &attr, sizeof attr);
    c->in_place = true;
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(clip_scale, sizeof(clip_attr), clip_infer, clip_cost, TL_SAVES_NONE, clip_forward, TL_NO_GRAD, clip_sample);

tl_tensor *tl_clip_scale_(tl_tensor *x, tl_tensor *total, double max_norm, const char *site) {
    clip_attr attr = {max_norm};
    return tl_run1(&tl_op_clip_scale, (tl_tensor *[]){x, total}, 2, &attr, site);
}
