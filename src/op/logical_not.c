/* not x, of bool: x compared with a zero that is not a tensor. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status not_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_bool(sig, 0);
    return status == TL_OK ? tl_bool_infer(sig) : status;
}

static tl_status not_forward(const tl_sig *sig, tl_args *args) {
    char zero = 0;
    tl_array *other = &args->call.in[1];
    *other = args->call.in[0];
    other->data = &zero;
    for (int i = 0; i < other->ndim; i++)
        other->stride[i] = 0;
    args->call.n_in = 2;
    return tl_args_run(sig, args, args->kernels->equal);
}

static void not_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    tl_sample_input(c, TL_BOOL, TL_FILL_INDEX, 3, size);
    c->in[0].limit = 2;
    c->n_out = 1;
}

TL_OP(logical_not, 0, not_infer, tl_cost_moves, TL_SAVES_NONE, not_forward, TL_NO_GRAD, not_sample);

tl_tensor *tl_logical_not_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_logical_not, (tl_tensor *[]){x}, 1, NULL, site);
}
