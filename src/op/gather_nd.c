/* Slices of x at places of several indices each (ONNX GatherND). */
#include "op/index.h"

static void gather_nd_sample(uint64_t seed, tl_case *c) { tl_index_sample(&seed, c, TL_INDEX_ND, false); }

TL_OP(gather_nd, sizeof(tl_index_attr), tl_gather_infer, tl_gather_cost, tl_gather_saves, tl_gather_forward,
      tl_gather_grad, gather_nd_sample);

tl_tensor *tl_gather_nd_(tl_tensor *x, tl_tensor *index, int shared_axes, const char *site) {
    tl_index_attr attr = {TL_INDEX_ND, shared_axes, TL_COMBINE_REPLACE};
    return tl_run1(&tl_op_gather_nd, (tl_tensor *[]){x, index}, 2, &attr, site);
}
