/* Sum over ranks, in place, by a ring (Patarasuk & Yuan 2009): each rank sends 2·(ranks − 1)/ranks of the bytes. */
#include "op/rows.h"

#include <string.h>

typedef struct all_reduce_attr {
    int64_t ranks;
    bool mean;
} all_reduce_attr;

static tl_status all_reduce_infer(tl_sig *sig) {
    const all_reduce_attr *attr = TL_ATTR(all_reduce_attr, sig);
    tl_status status;
    if (attr->ranks < 1)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld ranks; 1 or more would work", (long long)attr->ranks);
    if (attr->mean && (status = tl_sig_want_float(sig, 0)))
        return status;
    if (attr->ranks > 1 && sig->ctx->kernels)
        return tl_sig_fail(
            sig, TL_ERR_UNSUPPORTED,
            "%lld ranks on device %s: this build runs one rank. 1 rank would work, or the device meta, which "
            "plans any number",
            (long long)attr->ranks, tl_ctx_device(sig->ctx));
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    out->alias = 0;
    out->in_place = true;
    return TL_OK;
}

/* whole·numerator/ranks, rounded up: a ring's chunks are whole elements. Where that leaves a remainder there is no
 * polynomial, and the formula is a new symbol. */
static tl_amount share(tl_ctx *ctx, const tl_shape *shape, int64_t factor, int64_t numerator, int64_t ranks) {
    tl_amount whole = tl_amount_shape(ctx, factor, shape);
    tl_u128 product;
    if (!tl_mul_u128(whole.count, (tl_u128)numerator, &product) || product % (tl_u128)ranks == 0)
        return tl_amount_scale(ctx, whole, numerator, ranks);
    tl_dim bytes = tl_dim_mul(ctx, tl_dim_of(factor), tl_elements_dim(ctx, shape));
    tl_dim up = tl_dim_ceil_div(ctx, tl_dim_mul(ctx, bytes, tl_dim_of(numerator)), ranks);
    return tl_amount_of(ctx, 1, &up, 1);
}

static void all_reduce_cost(const tl_sig *sig, tl_cost *cost) {
    const all_reduce_attr *attr = TL_ATTR(all_reduce_attr, sig);
    const tl_shape *x = &sig->in[0]->shape;
    int64_t twice;
    if (!tl_mul_i64(2, attr->ranks - 1, &twice)) {
        tl_ctx_fail(sig->ctx, TL_ERR_OVERFLOW, "%lld ranks overflow 64 bits", (long long)attr->ranks);
        return;
    }
    /* While chunks go round, each rank adds ranks − 1 of them to its own; a mean scales the one it ends up with. */
    cost->sent = share(sig->ctx, x, tl_dtype_bytes(sig->in[0]->dtype), twice, attr->ranks);
    cost->arithmetic = share(sig->ctx, x, 1, attr->ranks - 1 + (attr->mean && attr->ranks > 1 ? 1 : 0), attr->ranks);
}

static tl_status all_reduce_forward(const tl_sig *sig, tl_args *args) {
    (void)sig; /* one rank: the sum is what is there */
    (void)args;
    return TL_OK;
}

static void all_reduce_sample(uint64_t seed, tl_case *c) {
    all_reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.ranks = 1;
    attr.mean = tl_sample_below(&seed, 2);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2,
                    (int64_t[]){tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 9)});
    c->in[0].fixed_layout = true;
    memcpy(c->attr, &attr, sizeof attr);
    c->in_place = true;
    c->n_out = 1;
    c->tolerance = 0;
}

TL_OP(all_reduce, sizeof(all_reduce_attr), all_reduce_infer, all_reduce_cost, TL_SAVES_NONE, all_reduce_forward,
      TL_NO_GRAD, all_reduce_sample);

tl_tensor *tl_all_reduce_(tl_tensor *x, int64_t ranks, bool mean, const char *site) {
    if (!x || ranks == 1)
        return x;
    all_reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.ranks = ranks;
    attr.mean = mean;
    return tl_run1(&tl_op_all_reduce, &x, 1, &attr, site);
}
