/* Choices by expert: a counting sort, no arithmetic. What comes out has the same size whatever was chosen. */
#include "op/moe.h"

#include <string.h>

typedef struct sort_attr {
    tl_dim n_expert;
} sort_attr;

static tl_status moe_sort_infer(tl_sig *sig) {
    tl_dim n_expert = TL_ATTR(sort_attr, sig)->n_expert;
    tl_status status = tl_moe_want_experts(sig, 0);
    if (status != TL_OK)
        return status;
    if (n_expert.size < 1 || n_expert.size >= TL_MOE_MOST_ROWS)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld experts; 1 to %lld would work", (long long)n_expert.size,
                           (long long)TL_MOE_MOST_ROWS - 1);
    tl_shape order = {.ndim = 1, .dim = {tl_elements_dim(sig->ctx, &sig->in[0]->shape)}};
    tl_shape offsets = {
        .ndim = 1,
        .dim = {tl_dim_add(sig->ctx, tl_dim_fixed(sig->ctx, n_expert), tl_dim_fixed(sig->ctx, tl_dim_of(1)))}};
    tl_sig_add(sig, TL_I32, &order);
    tl_sig_add(sig, TL_I32, &offsets);
    return TL_OK;
}

static void moe_sort_cost(const tl_sig *sig, tl_cost *cost) {
    (void)sig;
    (void)cost; /* reads and writes: the default */
}

static tl_status moe_sort_forward(const tl_sig *sig, tl_args *args) {
    return tl_moe_run_experts(sig, args, args->kernels->moe_sort, TL_ATTR(sort_attr, sig)->n_expert.size);
}

static void moe_sort_sample(uint64_t seed, tl_case *c) {
    int64_t n_expert = 1 + tl_sample_below(&seed, 9);
    sort_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert.size = n_expert;
    tl_sample_input(c, tl_sample_below(&seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 2,
                    (int64_t[]){tl_sample_below(&seed, 20), 1 + tl_sample_below(&seed, 4)});
    c->in[0].limit = n_expert;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 2;
}

TL_OP(moe_sort, sizeof(sort_attr), moe_sort_infer, moe_sort_cost, TL_SAVES_NONE, moe_sort_forward, TL_NO_GRAD,
      moe_sort_sample);

tl_status tl_moe_sort_(tl_tensor *experts, tl_dim n_expert, tl_tensor **order, tl_tensor **offsets, const char *site) {
    tl_tensor *out[2] = {NULL, NULL};
    sort_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert = n_expert;
    tl_status status = experts ? tl_run(experts->ctx, &tl_op_moe_sort, (tl_tensor *[]){experts}, 1, &attr, out, 2, site)
                               : TL_ERR_ARGUMENT;
    *order = out[0];
    *offsets = out[1];
    return status;
}
