/* AdamW in PyTorch's order with 8-bit states (Dettmers et al. 2022): each block of 256 elements is read from its codes,
 * updated, and coded again with the largest magnitude it then holds. */
#include "op/update.h"

#include <string.h>

static tl_status adamw8bit_infer(tl_sig *sig) {
    const tl_tensor *param = sig->in[1];
    int64_t count = tl_tensor_count(param), blocks = count / TL_8BIT_BLOCK + (count % TL_8BIT_BLOCK != 0);
    char a[200], b[200];
    tl_status status = tl_update_adam_infer(sig);
    if (status == TL_OK && TL_ATTR(tl_adamw_attr, sig)->cs336)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "CS336's order is adamw_update's; adamw8bit_update has none");
    for (int i = 2; i < 6 && status == TL_OK; i++) {
        const tl_tensor *t = sig->in[i];
        bool scale = i >= 4, fits = scale ? t->shape.ndim == 1 && t->shape.dim[0].size == blocks
                                          : tl_shape_equal(&t->shape, &param->shape);
        if (t->dtype != (scale ? TL_F32 : TL_U8))
            return tl_sig_fail(sig, TL_ERR_DTYPE, "%s are %s; %s would work", scale ? "scales" : "codes",
                               tl_dtype_name(t->dtype), scale ? "f32" : "u8");
        if (!fits || !tl_tensor_is_contiguous(t))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s are %s for a parameter of %s; contiguous, %s, would work",
                               scale ? "scales" : "codes", tl_tensor_text(t, a, sizeof a),
                               tl_tensor_text(param, b, sizeof b),
                               scale ? "one for each 256 elements" : "of its shape");
    }
    if (status != TL_OK)
        return status;
    return tl_update_infer_mixed(sig, 4);
}

static void adamw8bit_cost(const tl_sig *sig, tl_cost *cost) {
    /* adamw's 14; table·scale of m and v 2, ÷ scale of m and v 2. Looking up, comparing and searching count nothing. */
    tl_update_cost(sig, cost, 4, 18);
}

static tl_status adamw8bit_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->adamw8bit);
}

static void adamw8bit_sample(uint64_t seed, tl_case *c) {
    tl_adamw_attr attr;
    int64_t size[2] = {tl_sample_below(&seed, 20), 1 + tl_sample_below(&seed, 60)};
    int64_t blocks = (size[0] * size[1] + TL_8BIT_BLOCK - 1) / TL_8BIT_BLOCK;
    int copy = (int)tl_sample_below(&seed, 2);
    tl_update_adam_sample(&seed, &attr);
    for (int i = 0; i < 6 + copy; i++) {
        bool codes = i == 2 || i == 3, scales = i == 4 || i == 5;
        tl_sample_input(c, codes ? TL_U8 : TL_F32,
                        codes    ? TL_FILL_INDEX
                        : scales ? TL_FILL_POSITIVE
                                 : TL_FILL_NORMAL,
                        scales ? 1 : 2, scales ? &blocks : size);
        c->in[i].fixed_layout = i > 0;
        c->in[i].fixed_dtype = codes || scales;
        c->in[i].limit = codes ? 256 : 0;
    }
    c->in_place = true;
    c->n_out = 5 + copy;
    c->tolerance = 1e-5;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(adamw8bit_update, sizeof(tl_adamw_attr), adamw8bit_infer, adamw8bit_cost, TL_SAVES_NONE, adamw8bit_forward,
      TL_NO_GRAD, adamw8bit_sample);

tl_status tl_adamw8bit_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *const states[4], tl_tensor *copy,
                               const tl_adamw_options *options, const char *site) {
    tl_adamw_attr attr;
    if (!options)
        return tl_update_no_options("adamw8bit_update", param, site);
    tl_update_adam_attr(options, &attr);
    return tl_update_run(&tl_op_adamw8bit_update, grad, param, states, 4, copy, &attr, site);
}
