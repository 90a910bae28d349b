/* A tensor as it is, with another kept beside it until backward has passed: what a framework keeps though no gradient needs it. */
#include "op/views.h"
#include "tally/ops_choices.h"

static tl_status retain_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    return TL_OK;
}

static void retain_saves(const tl_sig *sig, tl_saves *saves) { saves->in = sig->needs_grad[0] ? 1u << 1 : 0; }

static tl_status retain_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    (void)saved;
    gin[0] = gout[0];
    return tl_ctx_status(ctx);
}

static void retain_sample(uint64_t seed, tl_case *c) {
    int64_t a = 1 + tl_sample_below(&seed, 4), b = tl_sample_below(&seed, 5);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){a, b});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){b});
    c->in[1].frozen = true;
    c->n_out = 1;
}

TL_OP(retain, 0, retain_infer, TL_COST_FREE, retain_saves, tl_forward_view, retain_grad, retain_sample);

tl_tensor *tl_retain_(tl_tensor *x, tl_tensor *kept, const char *site) {
    return kept ? tl_run1(&tl_op_retain, (tl_tensor *[]){x, kept}, 2, NULL, site) : x;
}
