/* The same bits read as another format of the same size: a view, free. */
#include "op/views.h"

#include <string.h>

typedef struct bitcast_attr {
    tl_dtype dtype;
} bitcast_attr;

static tl_status bitcast_infer(tl_sig *sig) {
    tl_dtype from = sig->in[0]->dtype, to = TL_ATTR(bitcast_attr, sig)->dtype;
    if ((unsigned)to >= TL_DTYPE_COUNT || tl_dtype_bytes(to) != tl_dtype_bytes(from))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "%s read as %s: the sizes differ; a format of %d bytes would work",
                           tl_dtype_name(from), tl_dtype_name(to), tl_dtype_bytes(from));
    if (to == TL_BOOL && from != TL_BOOL)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "%s read as bool: a bool is 0 or 1; cast it (≠ 0), or compare it",
                           tl_dtype_name(from));
    tl_output *out = tl_sig_add_view(sig, &sig->in[0]->shape, sig->in[0]->stride, sig->in[0]->offset);
    if (out)
        out->dtype = to;
    return TL_OK;
}

static void bitcast_sample(uint64_t seed, tl_case *c) {
    static const tl_dtype pairs[][2] = {{TL_F32, TL_I32}, {TL_I64, TL_F64}, {TL_I16, TL_U16}};
    const tl_dtype *pair = pairs[tl_sample_below(&seed, 3)];
    bitcast_attr attr = {pair[1]};
    int64_t size[] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 6)};
    tl_sample_input(c, pair[0], pair[0] == TL_F32 ? TL_FILL_POSITIVE : TL_FILL_INDEX, 2, size);
    c->in[0].limit = 100;
    c->in[0].fixed_dtype = true;
    c->n_out = 1;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(bitcast, sizeof(bitcast_attr), bitcast_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, TL_NO_GRAD,
      bitcast_sample);

tl_tensor *tl_bitcast_(tl_tensor *x, tl_dtype dtype, const char *site) {
    bitcast_attr attr = {dtype};
    return tl_run1(&tl_op_bitcast, (tl_tensor *[]){x}, 1, &attr, site);
}
