/* Rotary positions (Su et al. 2021, eq. 34). A rotation's gradient is the rotation back. */
#include "op/rows.h"

#include <string.h>

/* What is turned of a row. */
static int64_t turned_of(const tl_sig *sig, const tl_rotary_attr *attr) {
    return attr->rotated > 0 ? attr->rotated : tl_in_dim(sig, 0, -1).size;
}

static tl_status check_longrope(tl_sig *sig, const tl_rotary_attr *attr) {
    int64_t pairs = turned_of(sig, attr) / 2;
    if (attr->factors != pairs || (pairs > 0 && (!attr->short_factors || !attr->long_factors)))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "longrope has factors for %lld of %lld pairs; one for each would work",
                           (long long)attr->factors, (long long)pairs);
    for (int64_t i = 0; i < pairs; i++)
        if (!(attr->short_factors[i] > 0 && attr->long_factors[i] > 0))
            return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                               "longrope's factors of pair %lld are %g and %g; above 0 would work", (long long)i,
                               attr->short_factors[i], attr->long_factors[i]);
    if (attr->factor > 0 && attr->attention_factor >= 0 && attr->original_context > 1)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                       "longrope has factor %g, attention factor %g, original context %lld; above 0, 0 or more, and "
                       "above 1 would work",
                       attr->factor, attr->attention_factor, (long long)attr->original_context);
}

/* The kinds that take another base or other factors. */
static tl_status check_by_length(tl_sig *sig, const tl_rotary_attr *attr) {
    bool dynamic = attr->scaling == TL_ROTARY_DYNAMIC;
    int64_t turned = turned_of(sig, attr);
    if (attr->scaling == TL_ROTARY_LONGROPE)
        return check_longrope(sig, attr);
    if (attr->factor >= 1 && (!dynamic || attr->original_context > 0) && turned != 2)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                       "the frequencies' %s scaling has factor %g, original context %lld, %lld elements that turn; 1 "
                       "or more, above 0, and more than 2 would work",
                       dynamic ? "dynamic" : "ntk", attr->factor, (long long)attr->original_context, (long long)turned);
}

static tl_status check_frequencies(tl_sig *sig, const tl_rotary_attr *attr) {
    if (!(attr->theta > 0 && attr->theta <= 1e300))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "theta is %g; a positive number, as 10000, would work", attr->theta);
    if (attr->scaling < TL_ROTARY_PLAIN || attr->scaling > TL_ROTARY_LONGROPE)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the frequencies' scaling is of kind %d; 0 to %d would work",
                           attr->scaling, TL_ROTARY_LONGROPE);
    if (attr->scaling >= TL_ROTARY_DYNAMIC)
        return check_by_length(sig, attr);
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

/* Lengths are up to 6 from positions 0, 100 and 200: within and beyond 103. */
static void sample_by_length(uint64_t *seed, tl_rotary_attr *attr, int64_t turned) {
    static const double factors[2][8] = {{1, 1.25, 1.5, 2, 2.5, 3, 4, 5}, {2, 3, 5, 8, 11, 16, 24, 32}};
    attr->scaling = TL_ROTARY_DYNAMIC + (int)tl_sample_below(seed, 3);
    if (turned == 2)
        attr->scaling = TL_ROTARY_LONGROPE;
    attr->factor = 4;
    attr->original_context = 103;
    attr->short_factors = factors[0];
    attr->long_factors = factors[1];
    attr->factors = turned / 2;
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
    if (tl_sample_below(&seed, 3) == 0)
        sample_by_length(&seed, &attr, attr.rotated > 0 ? attr.rotated : size[3]);
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
    attr.short_factors = options->short_factors;
    attr.long_factors = options->long_factors;
    attr.factors = options->factors;
    return tl_run1(&tl_op_rotary, &x, 1, &attr, site);
}
