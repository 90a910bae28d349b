/* The output projection and the loss. */
#include "nn/cache.h"

static tl_tensor *logits_of(tl_net *net, tl_tensor *x) {
    double cap = net->model.final_softcap;
    tl_tensor *y = tl_linear(x, net->head ? net->head : net->token_table, net->head_bias);
    return cap != 0 ? tl_scale(tl_tanh(tl_scale(y, 1 / cap, 0)), cap, 0) : y;
}

tl_tensor *tl_head(tl_net *net, tl_tensor *x) {
    tl_enter(net, "lm_head", -1);
    if (net->cache && net->cache->last_only && x)
        x = tl_slice(x, 1, tl_tensor_size(x, 1) - 1, tl_dim_of(1), 1);
    return tl_leave(net, logits_of(net, x));
}

tl_tensor *tl_token_loss(tl_net *net, tl_tensor *logits, tl_tensor *target) {
    tl_enter(net, "loss", -1);
    return tl_leave(net, tl_cross_entropy(logits, target, TL_IGNORE_INDEX));
}
