/* The upper or lower triangle of the last two axes, zero elsewhere; the gradient is the same triangle of g. No arithmetic. */
#include "op/views.h"

#include <string.h>

static tl_status triangle_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_ndim(sig, 0, 2);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static tl_status triangle_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->triangle);
}

static tl_tensor *triangle(tl_tensor *x, bool upper, int64_t diagonal, const char *site);

static tl_status triangle_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_triangle_attr *attr = tl_saved_attr(saved);
    gin[0] = triangle(gout[0], attr->upper, attr->diagonal, saved->site);
    return tl_ctx_status(ctx);
}

static void triangle_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 6), tl_sample_below(&seed, 9)};
    tl_triangle_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.diagonal = tl_sample_below(&seed, 13) - 6;
    attr.upper = tl_sample_below(&seed, 2) != 0;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(triangle, sizeof(tl_triangle_attr), triangle_infer, tl_cost_moves, TL_SAVES_NONE, triangle_forward, triangle_grad,
      triangle_sample);

static tl_tensor *triangle(tl_tensor *x, bool upper, int64_t diagonal, const char *site) {
    tl_triangle_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.diagonal = diagonal;
    attr.upper = upper;
    return tl_run1(&tl_op_triangle, (tl_tensor *[]){x}, 1, &attr, site);
}

tl_tensor *tl_triu_(tl_tensor *x, int64_t diagonal, const char *site) { return triangle(x, true, diagonal, site); }

tl_tensor *tl_tril_(tl_tensor *x, int64_t diagonal, const char *site) { return triangle(x, false, diagonal, site); }
