/* Every element gets one value, in place. Nothing is read. */
#include "op/elementwise.h"
#include "op/inplace.h"

#include <string.h>

static tl_status fill_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->fill); }

static void fill_sample(uint64_t seed, tl_case *c) {
    tl_inplace_sample(seed, c);
    tl_fill_attr attr = {(double)tl_sample_below(&seed, 7) / 2 - 1};
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(fill, sizeof(tl_fill_attr), tl_inplace_infer_any, tl_cost_writes, TL_SAVES_NONE, fill_forward, TL_NO_GRAD,
      fill_sample);

tl_tensor *tl_fill_(tl_tensor *x, double value, const char *site) {
    tl_fill_attr attr = {value};
    return tl_run1(&tl_op_fill, (tl_tensor *[]){x}, 1, &attr, site);
}
