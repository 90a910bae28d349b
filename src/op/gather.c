/* Slices of x along an axis, by index (ONNX Gather, numpy take). The gradient adds them back where they came from. */
#include "op/index.h"

#include <string.h>

static void gather_sample(uint64_t seed, tl_case *c) { tl_index_sample(&seed, c, TL_INDEX_AXIS, false); }

TL_OP(gather, sizeof(tl_index_attr), tl_gather_infer, tl_gather_cost, tl_gather_saves, tl_gather_forward,
      tl_gather_grad, gather_sample);

tl_tensor *tl_gather_(tl_tensor *x, tl_tensor *index, int axis, const char *site) {
    tl_index_attr attr = {TL_INDEX_AXIS, axis, TL_COMBINE_REPLACE};
    return tl_run1(&tl_op_gather, (tl_tensor *[]){x, index}, 2, &attr, site);
}

tl_tensor *tl_take_(tl_tensor *x, tl_tensor *index, const char *site) {
    if (!x)
        return NULL;
    tl_shape flat = TL_SHAPE(x->ctx, tl_elements_dim(x->ctx, &x->shape));
    return tl_gather_(tl_reshape_(x, flat, site), index, 0, site);
}
