/* Ones on a diagonal of the last two axes and zeros elsewhere, in place. Only bytes are written. */
#include "op/inplace.h"
#include "op/views.h"

#include <string.h>

typedef struct eye_attr {
    int64_t diagonal;
} eye_attr;

static tl_status eye_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_ndim(sig, 0, 2);
    return status == TL_OK ? tl_inplace_infer_any(sig) : status;
}

static tl_status eye_forward(const tl_sig *sig, tl_args *args) {
    tl_fill_attr zero = {0}, one = {1};
    int64_t diagonal = TL_ATTR(eye_attr, sig)->diagonal;
    args->call.n_in = 0;
    args->call.attr = &zero;
    tl_status status = tl_args_run(sig, args, args->kernels->fill);
    tl_array *out = &args->call.out[0];
    int rows = out->ndim - 2, columns = out->ndim - 1;
    int64_t height = out->size[rows], width = out->size[columns];
    if (status != TL_OK || diagonal >= width || diagonal <= -height)
        return status;
    int64_t row = diagonal < 0 ? -diagonal : 0, column = diagonal > 0 ? diagonal : 0;
    int64_t offset = row * out->stride[rows] + column * out->stride[columns];
    if (out->data)
        out->data += offset * tl_dtype_bytes(out->dtype);
    out->size[rows] = height - row < width - column ? height - row : width - column;
    out->stride[rows] += out->stride[columns]; /* one step down and one to the right */
    out->ndim--;
    args->call.attr = &one;
    return tl_args_run(sig, args, args->kernels->fill);
}

static void eye_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 6), tl_sample_below(&seed, 9)};
    eye_attr attr = {tl_sample_below(&seed, 13) - 6};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->in[0].fixed_layout = c->in_place = true;
    c->n_out = 1;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(eye, sizeof(eye_attr), eye_infer, tl_cost_writes, TL_SAVES_NONE, eye_forward, TL_NO_GRAD, eye_sample);

tl_tensor *tl_eye_(tl_tensor *x, int64_t diagonal, const char *site) {
    eye_attr attr = {diagonal};
    return tl_run1(&tl_op_eye, (tl_tensor *[]){x}, 1, &attr, site);
}
