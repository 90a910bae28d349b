/* softmax(scale·x) over the last axis, shifted by each row's largest element so that no exp overflows. A row that sees
 * nothing is all 0, and so is its gradient. */
#include "op/elementwise.h"

#include <string.h>

static tl_status softmax_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_ndim(sig, 0, TL_ATTR(tl_softmax_attr, sig)->causal ? 2 : 1);
    return status == TL_OK ? tl_unary_infer(sig) : status;
}

static void softmax_cost(const tl_sig *sig, tl_cost *cost) {
    /* scale, − largest, Σ, ÷ Σ; one exp. The whole row is counted under a causal mask too: the masked part is written. */
    tl_unary_cost(sig, cost, 4, 1);
}

static tl_status softmax_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softmax);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 5, 0); /* scale·y·(g − Σ y·g): y·g and Σ 2, the rest 3 */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softmax_backward);
}

static void fill_attr(uint64_t *seed, tl_case *c) {
    tl_softmax_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.scale = tl_sample_below(seed, 2) ? 1 : 0.125;
    attr.causal = tl_sample_below(seed, 2);
    memcpy(c->attr, &attr, sizeof attr);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    fill_attr(&seed, c);
    c->tolerance = 1e-5;
}

TL_OP(softmax_backward, sizeof(tl_softmax_attr), tl_unary_backward_infer, backward_cost, TL_SAVES_NONE,
      backward_forward, TL_NO_GRAD, backward_sample);

static tl_status softmax_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_softmax_backward, gout, gin);
}

static void softmax_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c); /* more rows than columns too: under a causal mask the first rows then see nothing */
    fill_attr(&seed, c);
    c->tolerance = 1e-5;
}

TL_OP(softmax, sizeof(tl_softmax_attr), softmax_infer, softmax_cost, tl_unary_saves_output, softmax_forward,
      softmax_grad, softmax_sample);

tl_tensor *tl_softmax_(tl_tensor *x, double scale, bool causal, const char *site) {
    tl_softmax_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.scale = scale;
    attr.causal = causal;
    return tl_run1(&tl_op_softmax, (tl_tensor *[]){x}, 1, &attr, site);
}
