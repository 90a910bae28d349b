/* How often each expert was chosen, for each token: one division an expert. */
#include "op/moe.h"

#include <string.h>

typedef struct load_attr {
    tl_dim n_expert;
    tl_dtype dtype;
} load_attr;

static tl_status moe_load_infer(tl_sig *sig) {
    const load_attr *attr = TL_ATTR(load_attr, sig);
    tl_status status = tl_moe_want_experts(sig, 0);
    if (status != TL_OK)
        return status;
    if (!tl_dtype_is_float(attr->dtype))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "shares as %s; a floating format would work", tl_dtype_name(attr->dtype));
    if (attr->n_expert.size < 1)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld experts; 1 or more would work", (long long)attr->n_expert.size);
    tl_shape shape = {.ndim = 1, .dim = {attr->n_expert}};
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, attr->dtype, &shape);
    return status;
}

static void moe_load_cost(const tl_sig *sig, tl_cost *cost) {
    tl_dim n_expert = sig->out[0].shape.dim[0];
    cost->arithmetic = TL_AMOUNT(sig->ctx, 1, n_expert);
    cost->workspace = tl_dim_mul(sig->ctx, tl_dim_fixed(sig->ctx, tl_dim_of(8)), n_expert); /* counts */
}

static tl_status moe_load_forward(const tl_sig *sig, tl_args *args) {
    return tl_moe_run_experts(sig, args, args->kernels->moe_load, TL_ATTR(load_attr, sig)->n_expert.size);
}

static void moe_load_sample(uint64_t seed, tl_case *c) {
    load_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert.size = 1 + tl_sample_below(&seed, 9);
    attr.dtype = tl_sample_below(&seed, 2) ? TL_F32 : TL_F64;
    tl_sample_input(c, tl_sample_below(&seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 2,
                    (int64_t[]){tl_sample_below(&seed, 20), 1 + tl_sample_below(&seed, 4)});
    c->in[0].limit = attr.n_expert.size;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(moe_load, sizeof(load_attr), moe_load_infer, moe_load_cost, TL_SAVES_NONE, moe_load_forward, TL_NO_GRAD,
      moe_load_sample);

tl_tensor *tl_moe_load_(tl_tensor *experts, tl_dim n_expert, tl_dtype dtype, const char *site) {
    load_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert = n_expert;
    attr.dtype = dtype;
    return tl_run1(&tl_op_moe_load, (tl_tensor *[]){experts}, 1, &attr, site);
}
