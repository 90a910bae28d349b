/* Another number format: rounded to nearest even; to integers towards zero; to 8-bit floats saturating by choice. */
#include "op/elementwise.h"
#include "op/views.h"

#include <string.h>

typedef struct cast_attr {
    tl_dtype dtype;
    bool saturating; /* f8 only: too large a number is the largest, not NaN or infinity */
} cast_attr;

static tl_status cast_infer(tl_sig *sig) {
    tl_dtype to = TL_ATTR(cast_attr, sig)->dtype;
    if ((unsigned)to >= TL_DTYPE_COUNT)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "dtype %d is not one of " TL_DTYPE_NAMES, (int)to);
    if (sig->recording && !tl_dtype_is_float(to))
        return tl_sig_fail(sig, TL_ERR_DTYPE,
                           "no gradient passes through %s; stop recording, or cast to a float format",
                           tl_dtype_name(to));
    tl_sig_add(sig, to, &sig->in[0]->shape);
    return TL_OK;
}

static tl_status cast_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_cast_(gout[0], tl_saved_dtype(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

static void cast_sample(uint64_t seed, tl_case *c) {
    static const tl_dtype floats[] = {TL_F64, TL_F32, TL_BF16, TL_F16};
    tl_unary_sample(seed, c);
    cast_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = floats[tl_sample_below(&seed, 4)];
    memcpy(c->attr, &attr, sizeof attr);
    c->tolerance = 0;
}

static tl_status cast_forward(const tl_sig *sig, tl_args *args) {
    bool saturating = TL_ATTR(cast_attr, sig)->saturating;
    return tl_args_run(sig, args, saturating ? args->kernels->copy_saturating : args->kernels->copy);
}

/* A change of format is no arithmetic: only bytes are counted. */
TL_OP(cast, sizeof(cast_attr), cast_infer, tl_cost_moves, TL_SAVES_NONE, cast_forward, cast_grad, cast_sample);

static tl_tensor *cast(tl_tensor *x, tl_dtype dtype, bool saturating, const char *site) {
    cast_attr attr;
    memset(&attr, 0, sizeof attr); /* padding too: attributes are compared as bytes */
    attr.dtype = dtype;
    attr.saturating = saturating;
    return x && x->dtype == dtype ? x : tl_run1(&tl_op_cast, (tl_tensor *[]){x}, 1, &attr, site);
}

tl_tensor *tl_cast_(tl_tensor *x, tl_dtype dtype, const char *site) { return cast(x, dtype, false, site); }

tl_tensor *tl_cast_saturating_(tl_tensor *x, tl_dtype dtype, const char *site) { return cast(x, dtype, true, site); }
