/* What one layer takes from outside itself: another's keys and values, its part of the per-layer embeddings. */
#include "nn/names.h"

static bool any_shares(const tl_model *m) {
    bool any = false;
    for (int64_t i = 0; i < m->layers && i < TL_MODEL_LAYERS; i++)
        any = any || (m->layer[i] & TL_LAYER_SHARED_KV);
    return any;
}

enum {
    KIND_BITS = TL_LAYER_WINDOW | TL_LAYER_CHUNKED | TL_LAYER_NO_ROTARY | TL_LAYER_LOCAL_ROPE | TL_LAYER_GLOBAL_HEADS
};

int64_t tl_model_kv_source(const tl_model *m, int64_t layer) {
    int64_t i = layer;
    if (layer < 0 || layer >= TL_MODEL_LAYERS || !(m->layer[layer] & TL_LAYER_SHARED_KV))
        return layer;
    while (i >= 0 && ((m->layer[i] & TL_LAYER_SHARED_KV) || ((m->layer[i] ^ m->layer[layer]) & KIND_BITS)))
        i--;
    return i;
}

tl_status tl_shared_check(const char *name, const tl_model *m, tl_error *error) {
    if (!any_shares(m))
        return TL_OK;
    if (m->kv_rank > 0 || m->fused_qkv || tl_names_of(m)->layout != TL_FUSED_NONE)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "model %s: layers share keys and values where their projections stand apart alone", name);
    for (int64_t i = 0; i < m->layers; i++)
        if (tl_model_kv_source(m, i) < 0)
            return tl_fail(
                error, TL_ERR_ARGUMENT,
                "model %s: layer %lld takes keys and values of an earlier layer of its kind, but none before it "
                "has its own; fewer layers that share would work",
                name, (long long)i);
    return TL_OK;
}

tl_status tl_layer_inputs_check(const char *name, const tl_model *m, tl_error *error) {
    if (m->layer_input_size == 0 && m->layer_input_vocab == 0)
        return TL_OK;
    if (m->layer_input_size < 1 || m->layer_input_size > TL_MODEL_MOST_SIZE)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: layer_input_size (Dl) is %lld; it must be from 1 to %lld",
                       name, (long long)m->layer_input_size, (long long)TL_MODEL_MOST_SIZE);
    if (m->layer_input_vocab < m->vocab || m->layer_input_vocab > TL_MODEL_MOST_SIZE)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: layer_input_vocab (Vl) is %lld; every token needs a row, so it must be from the "
                       "vocabulary (V), %lld, to %lld",
                       name, (long long)m->layer_input_vocab, (long long)m->vocab, (long long)TL_MODEL_MOST_SIZE);
    return TL_OK;
}
