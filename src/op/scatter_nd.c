/* x with slices at places of several indices each replaced or combined (ONNX ScatterND), in order of position. */
#include "op/index.h"

static tl_status scatter_nd_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_scatter_grad(ctx, saved, &tl_op_gather_nd, gout, gin);
}

static void scatter_nd_sample(uint64_t seed, tl_case *c) { tl_index_sample(&seed, c, TL_INDEX_ND, true); }

TL_OP(scatter_nd, sizeof(tl_index_attr), tl_scatter_infer, tl_scatter_cost, tl_scatter_saves, tl_scatter_forward,
      scatter_nd_grad, scatter_nd_sample);

tl_tensor *tl_scatter_nd_(tl_tensor *x, tl_tensor *index, tl_tensor *updates, tl_scatter how, const char *site) {
    tl_index_attr attr = {TL_INDEX_ND, 0, (tl_combine)how};
    return tl_run1(&tl_op_scatter_nd, (tl_tensor *[]){x, index, updates}, 3, &attr, site);
}
