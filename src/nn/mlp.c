/* The dense feed-forward part: two matrices, or three with a gate, the gate's and the value's published apart or as one. */
#include "nn/names.h"

#include <stdio.h>

static tl_tensor *part(tl_net *net, const char *path, const char *name, tl_dim out, tl_dim in, double std,
                       tl_tensor **bias) {
    char text[160];
    snprintf(text, sizeof text, "%s%s", path, name);
    return tl_net_linear(net, text, out, in, std, net->model.mlp_bias || net->names->biased, bias);
}

bool tl_mlp_build(tl_net *net, tl_mlp *mlp, const char *path, tl_dim width) {
    const tl_names *n = net->names;
    const tl_symbols *s = &net->symbols;
    double std = net->model.init_std;
    bool ok = true;
    if (net->model.gated && n->gate_up) {
        ok = (mlp->up = part(net, path, n->gate_up, tl_dim_mul(net->ctx, tl_dim_of(2), width), s->D, std,
                             &mlp->up_bias)) != NULL;
    } else {
        if (net->model.gated)
            ok = (mlp->gate = part(net, path, n->gate, width, s->D, std, &mlp->gate_bias)) != NULL;
        ok = ok && (mlp->up = part(net, path, n->up, width, s->D, std, &mlp->up_bias));
    }
    return ok && (mlp->down = part(net, path, n->down, s->D, width, tl_residual_std(net), &mlp->down_bias));
}

static tl_tensor *gated_from_one(tl_net *net, const tl_mlp *m, tl_tensor *x) {
    tl_tensor *half[2] = {0}, *both = tl_apply_linear(net, net->names->gate_up, x, m->up, m->up_bias);
    if (!both)
        return NULL;
    const tl_shape *shape = tl_tensor_shape(both);
    tl_dim width = tl_dim_div(net->ctx, shape->dim[shape->ndim - 1], tl_dim_of(2)), widths[2] = {width, width};
    tl_split(both, -1, widths, 2, half);
    return tl_gated(net, half[0], half[1]);
}

tl_tensor *tl_apply_mlp(tl_net *net, const tl_mlp *m, tl_tensor *x) {
    const tl_names *n = net->names;
    tl_tensor *y;
    if (net->model.gated && n->gate_up)
        y = gated_from_one(net, m, x);
    else if (net->model.gated) {
        tl_tensor *gate = tl_apply_linear(net, n->gate, x, m->gate, m->gate_bias);
        y = tl_gated(net, gate, tl_apply_linear(net, n->up, x, m->up, m->up_bias));
    } else
        y = tl_activate(net, tl_apply_linear(net, n->up, x, m->up, m->up_bias));
    return tl_apply_linear(net, n->down, y, m->down, m->down_bias);
}
