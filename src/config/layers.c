/* What makes one layer unlike another: windows, kinds of attention, lists of layers. */
#include "base/nearest.h"
#include "config/fields.h"

#include <string.h>

void tl_config_mark(tl_model *model, int64_t layer, unsigned bits) {
    if (layer >= 0 && layer < TL_MODEL_LAYERS)
        model->layer[layer] = (uint16_t)(model->layer[layer] | bits);
}

bool tl_config_read_window(tl_config_reader *r, const char *key, int64_t standard) {
    tl_model *m = r->model;
    int64_t window;
    if (r->status != TL_OK || (!tl_config_has(r, key) && (tl_config_is_null(r, key) || standard == 0)))
        return false;
    window = tl_config_size_or(r, key, standard);
    if (r->status != TL_OK)
        return false;
    if (window >= m->context) {
        tl_config_ignore(r, "%s %lld: not below the context %lld, so it cuts nothing", key, (long long)window,
                         (long long)m->context);
        return false;
    }
    m->window = window;
    if (tl_config_has(r, key))
        tl_config_source(r, &m->source_window, key);
    else
        tl_config_set_source(&m->source_window, "assumed by %s", r->family);
    return true;
}

/* The list at `key`; NULL where it is absent, or no list, or not of `length` (negative: any). */
static const json_t *list_of(tl_config_reader *r, const char *key, int64_t length) {
    const json_t *list = json_object_get(r->object, key);
    char raw[64];
    if (r->status != TL_OK || !tl_config_has(r, key))
        return NULL;
    if (!json_is_array(list)) {
        tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be a list", tl_config_raw(r, key, raw, sizeof raw));
        return NULL;
    }
    if (length >= 0 && (int64_t)json_array_size(list) != length) {
        tl_config_fail(r, TL_ERR_SHAPE, key, "names %zu layers; the model has %lld", json_array_size(list),
                       (long long)length);
        return NULL;
    }
    return list;
}

bool tl_config_read_layer_types(tl_config_reader *r, unsigned sliding) {
    static const char *const kinds[] = {"full_attention", "sliding_attention", "chunked_attention"};
    const json_t *list = list_of(r, "layer_types", r->model->layers);
    if (list == NULL)
        return r->status != TL_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        size_t k = 0;
        while (k < 3 && (kind == NULL || strcmp(kind, kinds[k]) != 0))
            k++;
        if (k == 3) {
            char quoted[64];
            tl_config_fail(r, TL_ERR_UNSUPPORTED, "layer_types",
                           "says %s of layer %zu; full_attention, sliding_attention and chunked_attention are built in",
                           kind != NULL ? tl_quotable(kind, strlen(kind), quoted, sizeof quoted) : "no text", i);
            return true;
        }
        if (k > 0)
            tl_config_mark(r->model, (int64_t)i, k == 1 ? sliding : TL_LAYER_CHUNKED);
    }
    return true;
}

bool tl_config_read_layer_list(tl_config_reader *r, const char *key, bool marked[TL_MODEL_LAYERS]) {
    const json_t *list = list_of(r, key, -1);
    memset(marked, 0, TL_MODEL_LAYERS * sizeof marked[0]);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = json_is_integer(item) ? json_integer_value(item) : -1;
        if (layer < 0 || layer >= r->model->layers) {
            tl_config_fail(r, TL_ERR_ARGUMENT, key, "holds at %zu what is no layer; layers are 0 to %lld", i,
                           (long long)r->model->layers - 1);
            return false;
        }
        marked[layer] = true;
    }
    return json_array_size(list) > 0;
}

bool tl_config_read_layer_flags(tl_config_reader *r, const char *key, bool zero[TL_MODEL_LAYERS]) {
    const json_t *list = json_object_get(r->object, key);
    memset(zero, 0, TL_MODEL_LAYERS * sizeof zero[0]);
    list = json_is_array(list) && json_array_size(list) == 0 && tl_config_has(r, key)
               ? NULL
               : list_of(r, key, r->model->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || (json_integer_value(item) != 0 && json_integer_value(item) != 1)) {
            tl_config_fail(r, TL_ERR_ARGUMENT, key, "holds at %zu what is neither 0 nor 1", i);
            return false;
        }
        zero[i] = json_integer_value(item) == 0;
    }
    return json_array_size(list) > 0;
}
