/* Rotary positions (Su et al. 2021, eq. 34). A rotation's gradient is the rotation back. */
#include "op/rows.h"

#include <string.h>

static tl_status check_frequencies(tl_sig *sig, const tl_rotary_attr *attr) {
    if (!(attr->theta > 0 && attr->theta <= 1e300))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "theta is %g; a positive number, as 10000, would work", attr->theta);
    if (attr->scaling < TL_ROTARY_PLAIN || attr->scaling > TL_ROTARY_YARN)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the frequencies' scaling is of kind %d; 0 to %d would work",
                           attr->scaling, TL_ROTARY_YARN);
    if (attr->scaling == TL_ROTARY_YARN || attr->scaling == TL_ROTARY_LINEAR) {
        bool yarn = attr->scaling == TL_ROTARY_YARN;
        if (attr->factor > 0 &&
            (!yarn || (attr->beta_fast > 0 && attr->beta_slow > 0 && attr->original_context > 0 && attr->theta != 1 &&
                       attr->attention_factor >= 0 && attr->mscale >= 0 && attr->mscale_all >= 0)))
            return TL_OK;
        return tl_sig_fail(
            sig, TL_ERR_ARGUMENT,
            "the frequencies' %s scaling has factor %g, betas %g and %g, original context %lld; all above "
            "0 would work, as YaRN's 32 and 1",
            yarn ? "yarn" : "linear", attr->factor, attr->beta_fast, attr->beta_slow,
            (long long)attr->original_context);
    }
    if (attr->factor == 0)
        return TL_OK;
    if (!(attr->factor > 0 && attr->low_freq_factor > 0 && attr->high_freq_factor >= attr->low_freq_factor &&
          attr->original_context > 0))
        return tl_sig_fail(
            sig, TL_ERR_ARGUMENT,
            "the frequencies' scaling has factor %g, low %g, high %g, original context %lld; factor > 0, "
            "0 < low <= high and a context > 0 would work, as Llama 3.1's 8, 1, 4, 8192",
            attr->factor, attr->low_freq_factor, attr->high_freq_factor, (long long)attr->original_context);
    return TL_OK;
}

static tl_status rotary_infer(tl_sig *sig) {
    const tl_rotary_attr *attr = TL_ATTR(tl_rotary_attr, sig);
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 2)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = check_frequencies(sig, attr)))
        return status;
    const tl_tensor *x = sig->in[0];
    int64_t last, width = tl_in_dim(sig, 0, -1).size;
    if (attr->rotated < 0 || attr->rotated > width || attr->rotated % 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "the first %lld of %lld are turned; an even number, no more than there are, would work",
                           (long long)attr->rotated, (long long)width);
    if (attr->pairs < 0 || attr->pairs > width / 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%lld of %lld pairs are turned; no more than there are would work",
                           (long long)attr->pairs, (long long)(width / 2));
    if (attr->rotated == 0 && width % 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "the last axis has size %lld and is turned in pairs; an even size would work",
                           (long long)width);
    if (attr->first < 0 || !tl_add_i64(attr->first, tl_in_dim(sig, 0, -2).size, &last))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the first position is %lld; 0 or more, below 2^63, would work",
                           (long long)attr->first);
    tl_sig_add(sig, x->dtype, &x->shape);
    return TL_OK;
}

static void rotary_cost(const tl_sig *sig, tl_cost *cost) {
    int64_t rotated = TL_ATTR(tl_rotary_attr, sig)->rotated;
    tl_shape turned = sig->in[0]->shape;
    if (rotated > 0)
        turned.dim[turned.ndim - 1] = tl_dim_of(rotated);
    tl_dim table[] = {turned.dim[turned.ndim - 2], turned.dim[turned.ndim - 1]};
    /* A pair: 4 products, 2 sums. A position and pair, for all heads and sequences at once: the angle's product, a sine and
     * a cosine. */
    cost->arithmetic = tl_amount_shape(sig->ctx, 3, &turned);
    cost->special = tl_amount_of(sig->ctx, 1, table, 2);
    cost->arithmetic = tl_amount_add(sig->ctx, cost->arithmetic, tl_amount_scale(sig->ctx, cost->special, 1, 2));
}

static tl_status rotary_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->rotary);
}

extern const tl_op tl_op_rotary;

static tl_status rotary_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_rotary_attr attr;
    memcpy(&attr, tl_saved_attr(saved), sizeof attr);
    attr.inverse = !attr.inverse;
    gin[0] = tl_run1(&tl_op_rotary, &gout[0], 1, &attr, saved->site);
    return tl_ctx_status(ctx);
}

static void rotary_sample(uint64_t seed, tl_case *c) {
    int64_t size[4] = {1 + tl_sample_below(&seed, 2), 1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 7),
                       2 * tl_sample_below(&seed, 9)};
    int first = (int)tl_sample_below(&seed, 3);
    tl_rotary_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.theta = tl_sample_below(&seed, 2) ? 10000 : 500000;
    attr.first = tl_sample_below(&seed, 3) * 100;
    attr.interleaved = tl_sample_below(&seed, 2);
    attr.inverse = tl_sample_below(&seed, 2);
    if (tl_sample_below(&seed, 3) == 0) {
        attr.factor = 8;
        attr.low_freq_factor = 1;
        attr.high_freq_factor = 4;
        attr.original_context = 64;
    } else if (tl_sample_below(&seed, 3) == 0) {
        attr.scaling = TL_ROTARY_LINEAR + (int)tl_sample_below(&seed, 2);
        attr.factor = 4;
        attr.beta_fast = 32;
        attr.beta_slow = 1;
        attr.original_context = 256;
        attr.no_truncate = tl_sample_below(&seed, 2);
    }
    if (tl_sample_below(&seed, 3) == 0)
        attr.rotated = 2 * tl_sample_below(&seed, 1 + size[3] / 2);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4 - first, size + first);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(rotary, sizeof(tl_rotary_attr), rotary_infer, rotary_cost, TL_SAVES_NONE, rotary_forward, rotary_grad,
      rotary_sample);

tl_tensor *tl_rotary_(tl_tensor *x, const tl_rotary_options *options, const char *site) {
    tl_rotary_attr attr;
    if (!x)
        return NULL;
    if (!options) {
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "rotary (%s): options are missing; theta 10000 is the paper's", site);
        return NULL;
    }
    memset(&attr, 0, sizeof attr);
    attr.theta = options->theta;
    attr.first = options->first_position;
    attr.interleaved = options->interleaved;
    attr.factor = options->factor;
    attr.low_freq_factor = options->low_freq_factor;
    attr.high_freq_factor = options->high_freq_factor;
    attr.original_context = options->original_context;
    attr.rotated = options->rotated;
    attr.pairs = options->pairs;
    attr.scaling = (int)options->scaling;
    attr.beta_fast = options->beta_fast;
    attr.beta_slow = options->beta_slow;
    attr.attention_factor = options->attention_factor;
    attr.mscale = options->mscale;
    attr.mscale_all = options->mscale_all;
    attr.no_truncate = options->no_truncate;
    return tl_run1(&tl_op_rotary, &x, 1, &attr, site);
}
