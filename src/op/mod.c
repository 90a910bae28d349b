/* The remainder with the divisor's sign, as Python's %: a − b·⌊a/b⌋; with broadcasting; integers by 0 give 0. With the
 * quotient q = (a − y)/b a whole number, da = g and db = −g·q. */
#include "op/elementwise.h"

static void mod_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = sig->needs_grad[1] ? 3 : 0;
    saves->out = sig->needs_grad[1] ? 1 : 0;
}

static tl_status mod_forward(const tl_sig *sig, tl_args *args) { return tl_binary_run(sig, args, args->kernels->mod); }

static tl_status mod_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const char *site = saved->site;
    if (tl_saved_needs(saved, 0))
        gin[0] = tl_sum_to(gout[0], tl_saved_shape(saved, 0), site);
    if (tl_saved_needs(saved, 1)) {
        tl_tensor *past = tl_sub_(tl_saved_out(saved, 0), tl_saved_in(saved, 0), site);
        tl_tensor *quotient = tl_round_(tl_div_(past, tl_saved_in(saved, 1), site), site); /* −q, whole again */
        gin[1] = tl_sum_to(tl_mul_(gout[0], quotient, site), tl_saved_shape(saved, 1), site);
    }
    return tl_ctx_status(ctx);
}

/* The quotient jumps where it is whole: few cases come near that, and differences there say nothing. */
static void mod_sample(uint64_t seed, tl_case *c) {
    tl_binary_sample(seed, c);
    c->in[0].fill = TL_FILL_UNIT;
}

TL_OP(mod, 0, tl_binary_infer, tl_binary_cost, mod_saves, mod_forward, mod_grad, mod_sample);

tl_tensor *tl_mod_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_mod, (tl_tensor *[]){a, b}, 2, NULL, site);
}
