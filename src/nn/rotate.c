/* Rotary positions as the description has them: whole or partial, scaled or not, global or local. */
#include "nn/net.h"

static tl_rotary_options options_of(const tl_net *net, const tl_tensor *x, bool local) {
    const tl_model *m = &net->model;
    const tl_shape *shape = tl_tensor_shape(x);
    tl_rotary_options o = {.theta = local ? m->rope_local_theta : m->rope_theta,
                           .first_position = tl_first_position(net),
                           .interleaved = m->rope_interleaved};
    /* what is turned may be less than a head, and a layer's heads smaller than the model's */
    if (m->rotary_size > 0 && m->rotary_size < shape->dim[shape->ndim - 1].size)
        o.rotated = m->rotary_size;
    if (local)
        return o;
    o.scaling = m->rope_scaling == TL_ROPE_YARN     ? TL_ROTARY_YARN
                : m->rope_scaling == TL_ROPE_LINEAR ? TL_ROTARY_LINEAR
                                                    : TL_ROTARY_PLAIN;
    o.factor = m->rope_factor;
    o.low_freq_factor = m->rope_low_freq;
    o.high_freq_factor = m->rope_high_freq;
    o.original_context = m->rope_original_context;
    o.beta_fast = m->rope_beta_fast != 0 ? m->rope_beta_fast : 32; /* YaRN, section 3.2 and Hugging Face's defaults */
    o.beta_slow = m->rope_beta_slow != 0 ? m->rope_beta_slow : 1;
    o.attention_factor = m->rope_attention_factor;
    o.mscale = m->rope_mscale;
    o.mscale_all = m->rope_mscale_all;
    o.no_truncate = m->rope_no_truncate;
    return o;
}

tl_tensor *tl_rotate(tl_net *net, tl_tensor *x, bool local) {
    if (!x)
        return NULL;
    tl_rotary_options options = options_of(net, x, local);
    return tl_rotary(x, &options);
}
