/* One element of x for each index, at the index's own place but along one axis (ONNX GatherElements, PyTorch gather). */
#include "op/index.h"

static void gather_elements_sample(uint64_t seed, tl_case *c) { tl_index_sample(&seed, c, TL_INDEX_ELEMENTS, false); }

TL_OP(gather_elements, sizeof(tl_index_attr), tl_gather_infer, tl_gather_cost, tl_gather_saves, tl_gather_forward,
      tl_gather_grad, gather_elements_sample);

tl_tensor *tl_gather_elements_(tl_tensor *x, tl_tensor *index, int axis, const char *site) {
    tl_index_attr attr = {TL_INDEX_ELEMENTS, axis, TL_COMBINE_REPLACE};
    return tl_run1(&tl_op_gather_elements, (tl_tensor *[]){x, index}, 2, &attr, site);
}
