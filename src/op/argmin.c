/* Where the smallest element along an axis is; the first of equals, or the last. A NaN is the smallest. Comparisons are no
 * FLOPs: only bytes are counted. */
#include "op/along.h"

#include <string.h>

static tl_status argmin_forward(const tl_sig *sig, tl_args *args) { return tl_arg_run(sig, args, true); }

TL_OP(argmin, sizeof(tl_arg_attr), tl_arg_infer, tl_cost_moves, TL_SAVES_NONE, argmin_forward, TL_NO_GRAD,
      tl_arg_sample);

tl_tensor *tl_argmin_along_(tl_tensor *x, int axis, bool keep, bool last, const char *site) {
    tl_arg_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis;
    attr.keep = keep;
    attr.last = last;
    return tl_run1(&tl_op_argmin, (tl_tensor *[]){x}, 1, &attr, site);
}
