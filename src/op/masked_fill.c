/* x, with one value where the mask holds; the mask broadcasts to x. The gradient is 0 there. */
#include "op/elementwise.h"
#include "op/views.h"

#include <string.h>

static tl_status masked_fill_infer(tl_sig *sig) {
    char x[200], mask[200];
    tl_shape shape;
    tl_status status = tl_sig_want_bool(sig, 1);
    if (status == TL_OK)
        status = tl_sig_broadcast(sig, 0, 1, &shape);
    if (status != TL_OK)
        return status;
    if (!tl_shape_equal(&shape, &sig->in[0]->shape))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the mask %s is larger than %s; a mask that broadcasts to it would work",
                           tl_tensor_text(sig->in[1], mask, sizeof mask), tl_tensor_text(sig->in[0], x, sizeof x));
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

static void masked_fill_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 2;
}

static tl_status masked_fill_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->masked_fill);
}

static tl_status masked_fill_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_masked_fill_(gout[0], tl_saved_in(saved, 1), 0, saved->site);
    return tl_ctx_status(ctx);
}

static void masked_fill_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    bool row = tl_sample_below(&seed, 2);
    tl_fill_attr attr = {(double)tl_sample_below(&seed, 5) - 2};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_BOOL, TL_FILL_INDEX, row ? 1 : 3, row ? &size[2] : size);
    c->in[1].limit = 2;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(masked_fill, sizeof(tl_fill_attr), masked_fill_infer, tl_cost_moves, masked_fill_saves, masked_fill_forward,
      masked_fill_grad, masked_fill_sample);

tl_tensor *tl_masked_fill_(tl_tensor *x, tl_tensor *mask, double value, const char *site) {
    tl_fill_attr attr = {value};
    return tl_run1(&tl_op_masked_fill, (tl_tensor *[]){x, mask}, 2, &attr, site);
}
