/* The same bytes read as another format of the same width: a view. */
#include "op/views.h"

#include <string.h>

typedef struct bitcast_attr {
    tl_dtype dtype;
} bitcast_attr;

static tl_status bitcast_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    tl_dtype to = TL_ATTR(bitcast_attr, sig)->dtype;
    if ((unsigned)to >= TL_DTYPE_COUNT)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "dtype %d is not one of " TL_DTYPE_NAMES, (int)to);
    if (tl_dtype_bytes(to) != tl_dtype_bytes(t->dtype))
        return tl_sig_fail(
            sig, TL_ERR_DTYPE,
            "%s has %d bytes an element and %s has %d; formats of one width would work, tl_cast converts",
            tl_dtype_name(t->dtype), tl_dtype_bytes(t->dtype), tl_dtype_name(to), tl_dtype_bytes(to));
    if (sig->needs_grad[0])
        return tl_sig_fail(sig, TL_ERR_DTYPE,
                           "no gradient passes through bits; stop recording, or use tl_cast to convert");
    tl_sig_add_view(sig, &t->shape, t->stride, t->offset)->dtype = to;
    return TL_OK;
}

static void bitcast_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 9)};
    bitcast_attr attr = {TL_I8};
    tl_sample_input(c, TL_U8, TL_FILL_INDEX, 3, size);
    c->in[0].limit = 256;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(bitcast, sizeof(bitcast_attr), bitcast_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, TL_NO_GRAD,
      bitcast_sample);

tl_tensor *tl_bitcast_(tl_tensor *x, tl_dtype dtype, const char *site) {
    bitcast_attr attr = {dtype};
    return x && x->dtype == dtype ? x : tl_run1(&tl_op_bitcast, (tl_tensor *[]){x}, 1, &attr, site);
}
