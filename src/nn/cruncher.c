/* The Cruncher of CS336's lecture 2: N linear layers D→D without biases, then D→1; squared error. */
#include "nn/net.h"

#include <stdio.h>

static bool cruncher_build(tl_net *net) {
    char path[64];
    tl_dim D = net->symbols.D;
    double std = 1.0 / tl_square_root((double)net->model.width); /* 1/√d keeps outputs of size 1 (lecture 2) */
    bool ok = true;
    for (tl_repeat r = tl_repeat_begin(net->ctx, "N", net->model.layers); ok && tl_repeat_next(&r);) {
        tl_module_begin(net->ctx, "layers", r.index);
        snprintf(path, sizeof path, "layers.%lld", (long long)r.index);
        ok = (net->blocks[r.index].mlp.up = tl_net_linear(net, path, D, D, std, false, NULL)) != NULL;
        tl_module_end(net->ctx);
        if (!ok)
            tl_repeat_end(&r);
    }
    return ok && (net->head = tl_net_linear(net, "final", tl_dim_of(1), D, std, false, NULL)) != NULL;
}

static tl_tensor *cruncher_hidden(tl_net *net, tl_tensor *input) {
    tl_tensor *h =
        NULL; /* not the input itself: the repetition releases what it carries, and the input is the caller's */
    for (tl_repeat r = tl_repeat_begin(net->ctx, "N", net->model.layers); tl_repeat_next(&r);) {
        tl_module_begin(net->ctx, "layers", r.index);
        tl_tensor *y = tl_product_layer(net, h ? h : input, net->blocks[r.index].mlp.up, NULL, TL_HERE);
        tl_module_end(net->ctx);
        tl_repeat_into(&r, &h, y);
    }
    return h ? h : input;
}

static tl_tensor *cruncher_head(tl_net *net, tl_tensor *h) {
    tl_enter(net, "final", -1);
    tl_tensor *y = h ? tl_linear(h, net->head, NULL) : NULL;
    if (y)
        y = tl_view(y, TL_SHAPE(net->ctx, tl_tensor_shape(y)->dim[0]));
    return tl_leave(net, y);
}

static tl_tensor *cruncher_loss(tl_net *net, tl_tensor *output, tl_tensor *target) {
    tl_enter(net, "loss", -1);
    return tl_leave(net, tl_mse(output, target));
}

const tl_family_code tl_family_cruncher = {cruncher_build, cruncher_hidden, cruncher_head, cruncher_loss};
