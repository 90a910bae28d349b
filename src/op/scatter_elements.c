/* x with one element for each index replaced or combined (ONNX ScatterElements). In order of position, so that where indices
 * repeat, the last replaces. */
#include "op/index.h"

static tl_status scatter_elements_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_scatter_grad(ctx, saved, &tl_op_gather_elements, gout, gin);
}

static void scatter_elements_sample(uint64_t seed, tl_case *c) { tl_index_sample(&seed, c, TL_INDEX_ELEMENTS, true); }

TL_OP(scatter_elements, sizeof(tl_index_attr), tl_scatter_infer, tl_scatter_cost, tl_scatter_saves, tl_scatter_forward,
      scatter_elements_grad, scatter_elements_sample);

tl_tensor *tl_scatter_elements_(tl_tensor *x, tl_tensor *index, tl_tensor *updates, int axis, tl_scatter how,
                                const char *site) {
    tl_index_attr attr = {TL_INDEX_ELEMENTS, axis, (tl_combine)how};
    return tl_run1(&tl_op_scatter_elements, (tl_tensor *[]){x, index, updates}, 3, &attr, site);
}
