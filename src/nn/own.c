/* Per-layer embeddings (Gemma 4's small models; transformers' modeling_gemma4.py: get_per_layer_inputs, project_per_layer_inputs
 * and the end of Gemma4TextDecoderLayer.forward): of each token a row of a table of its own, N·Dl wide, and a projection of its
 * embedding; a layer's Dl of both gate what the layer adds last. */
#include "nn/names.h"

#include "tally/op.h"
#include "tensor/ctx.h"

#include <stdio.h>

/* ---- parameters ---- */

static tl_dim all_layers(const tl_net *net) { return tl_dim_mul(net->ctx, net->symbols.N, net->symbols.Dl); }

bool tl_own_build(tl_net *net) {
    char path[96];
    const char *prefix = net->names->prefix;
    const tl_symbols *s = &net->symbols;
    double std = net->model.init_std;
    snprintf(path, sizeof path, "%sembed_tokens_per_layer.weight", prefix);
    net->own_table = tl_net_parameter(net, path, TL_SHAPE(net->ctx, s->Vl, all_layers(net)),
                                      (tl_start){TL_START_NORMAL, std}, true, true);
    snprintf(path, sizeof path, "%sper_layer_model_projection", prefix);
    if (!net->own_table || !(net->own_in = tl_net_linear(net, path, all_layers(net), s->D, std, false, NULL)))
        return false;
    snprintf(path, sizeof path, "%sper_layer_projection_norm", prefix);
    return tl_net_norm(net, &net->own_norm, path, s->Dl);
}

bool tl_own_build_block(tl_net *net, tl_block *b, const char *path) {
    char gate[128], projection[128], norm[128];
    const tl_symbols *s = &net->symbols;
    double std = net->model.init_std;
    snprintf(gate, sizeof gate, "%sper_layer_input_gate", path);
    snprintf(projection, sizeof projection, "%sper_layer_projection", path);
    snprintf(norm, sizeof norm, "%spost_per_layer_input_norm", path);
    return (b->own_gate = tl_net_linear(net, gate, s->Dl, s->D, std, false, NULL)) &&
           (b->own_projection = tl_net_linear(net, projection, s->D, s->Dl, std, false, NULL)) &&
           tl_net_norm(net, &b->own_after, norm, s->D);
}

/* ---- forward ---- */

/* each[B,T,n,Dl] as n views. A split makes 16 at most, so more are split again: the gradient is a concatenation for each. */
static bool fan_out(tl_net *net, tl_tensor *each, int64_t n, tl_tensor *own[]) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *part[TL_MAX_IO] = {NULL};
    tl_dim size[TL_MAX_IO];
    int64_t most = TL_MAX_IO, count = n <= most ? n : (n + most - 1) / most, at = 0;
    count = count < most ? count : most;
    for (int64_t i = 0; i < count; i++)
        size[i] = tl_dim_of(n / count + (i < n % count));
    if (!each || tl_split(each, 2, size, (int)count, part) != TL_OK)
        return false;
    const tl_shape *s = tl_tensor_shape(each);
    for (int64_t i = 0; i < count; at += size[i++].size)
        if (size[i].size > 1 ? !fan_out(net, part[i], size[i].size, own + at)
                             : !(own[at] = tl_view(part[i], TL_SHAPE(ctx, s->dim[0], s->dim[1], s->dim[3]))))
            return false;
    return true;
}

bool tl_own_inputs(tl_net *net, tl_tensor *tokens, tl_tensor *x, tl_tensor *own[TL_MODEL_LAYERS]) {
    tl_ctx *ctx = net->ctx;
    const tl_model *m = &net->model;
    const tl_symbols *s = &net->symbols;
    tl_enter(net, "per_layer_inputs", -1);
    tl_enter(net, "embed_tokens_per_layer", -1);
    tl_tensor *rows = tl_scale(tl_embedding(net->own_table, tokens), tl_square_root((double)m->layer_input_size), 0);
    rows = tl_leave(net, rows);
    tl_tensor *context = tl_apply_linear(net, "per_layer_model_projection", x, net->own_in, NULL);
    context = tl_scale(context, 1 / tl_square_root((double)m->width), 0);
    if (!rows || !context)
        return tl_leave(net, NULL) != NULL;
    const tl_shape *shape = tl_tensor_shape(context);
    tl_shape by_layer = TL_SHAPE(ctx, shape->dim[0], shape->dim[1], s->N, s->Dl);
    context = tl_apply_norm(net, &net->own_norm, "per_layer_projection_norm", tl_view(context, by_layer));
    tl_tensor *sum = tl_add(context, tl_view(rows, by_layer));
    return fan_out(net, tl_leave(net, tl_scale(sum, tl_square_root(0.5), 0)), m->layers, own);
}

tl_tensor *tl_own_add(tl_net *net, const tl_block *b, tl_tensor *y, tl_tensor *own) {
    tl_tensor *z = tl_apply_linear(net, "per_layer_input_gate", y, b->own_gate, NULL);
    z = own ? tl_mul(tl_activate(net, z), own) : NULL;
    z = tl_apply_linear(net, "per_layer_projection", z, b->own_projection, NULL);
    return tl_add(y, tl_apply_norm(net, &b->own_after, "post_per_layer_input_norm", z));
}
