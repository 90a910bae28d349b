/* The first choices of each expert, as many as it has places; later ones are dropped. No arithmetic. */
#include "op/moe.h"

#include <string.h>

typedef struct capacity_attr {
    tl_capacity_attr how; /* first: the kernel reads this much */
    tl_dim n_expert, capacity;
} capacity_attr;

static tl_status moe_capacity_infer(tl_sig *sig) {
    const capacity_attr *attr = TL_ATTR(capacity_attr, sig);
    tl_status status = tl_moe_want_experts(sig, 0);
    int64_t rows;
    if (status != TL_OK)
        return status;
    if (attr->n_expert.size < 1 || attr->capacity.size < 0 ||
        __builtin_mul_overflow(attr->n_expert.size, attr->capacity.size, &rows) || rows > TL_MOE_MOST_ROWS)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                           "%lld experts with %lld places each; at least 1 and 0, and fewer than 2^31 places in all, "
                           "would work",
                           (long long)attr->n_expert.size, (long long)attr->capacity.size);
    tl_shape order = {.ndim = 2, .dim = {attr->n_expert, attr->capacity}};
    if ((status = tl_sig_check_shape(sig, &order)) == TL_OK)
        tl_sig_add(sig, TL_I32, &order);
    return status;
}

static void moe_capacity_cost(const tl_sig *sig, tl_cost *cost) {
    tl_dim n_expert = tl_dim_fixed(sig->ctx, TL_ATTR(capacity_attr, sig)->n_expert);
    cost->workspace = tl_dim_mul(sig->ctx, tl_dim_fixed(sig->ctx, tl_dim_of(8)), n_expert); /* places taken */
}

static tl_status moe_capacity_forward(const tl_sig *sig, tl_args *args) {
    return tl_moe_run_experts(sig, args, args->kernels->moe_capacity, TL_ATTR(capacity_attr, sig)->n_expert.size);
}

static void moe_capacity_sample(uint64_t seed, tl_case *c) {
    capacity_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert.size = 1 + tl_sample_below(&seed, 5);
    attr.capacity.size = tl_sample_below(&seed, 6);
    attr.how.choice_first = tl_sample_below(&seed, 2);
    tl_sample_input(c, tl_sample_below(&seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 2,
                    (int64_t[]){tl_sample_below(&seed, 20), 1 + tl_sample_below(&seed, 4)});
    c->in[0].limit = attr.n_expert.size;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(moe_capacity, sizeof(capacity_attr), moe_capacity_infer, moe_capacity_cost, TL_SAVES_NONE, moe_capacity_forward,
      TL_NO_GRAD, moe_capacity_sample);

tl_tensor *tl_moe_capacity_(tl_tensor *experts, tl_dim n_expert, tl_dim capacity, bool choice_first, const char *site) {
    capacity_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.how.choice_first = choice_first;
    attr.n_expert = n_expert;
    attr.capacity = capacity;
    return tl_run1(&tl_op_moe_capacity, (tl_tensor *[]){experts}, 1, &attr, site);
}
