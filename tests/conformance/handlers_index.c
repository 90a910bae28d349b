/* Gather, scatter, sort, padding and repetition: what only moves elements is compared exactly. */
#include <string.h>

#include "conformance/conformance.h"
#include "tally/ops_index.h"

/* All values of an integer input; how many, 0 where it is absent or longer than `room`. */
static int whole(const conformance_case *c, int input, int64_t *value, int room) {
    if (input >= c->n_in || !c->in[input].given || c->in[input].array.count > room)
        return 0;
    const npy_array *a = &c->in[input].array;
    for (int64_t i = 0; i < a->count; i++) {
        int32_t narrow;
        if (a->bytes == 8)
            memcpy(&value[i], a->data + i * 8, 8);
        else {
            memcpy(&narrow, a->data + i * 4, 4);
            value[i] = narrow;
        }
    }
    return (int)a->count;
}

static int axis_of(const conformance_case *c, int otherwise) { return (int)conformance_int(c, "axis", otherwise); }

static void run_gather(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_gather(c->x[0], c->x[1], axis_of(c, 0));
}

static void run_gather_elements(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_gather_elements(c->x[0], c->x[1], axis_of(c, 0));
}

static void run_gather_nd(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_gather_nd(c->x[0], c->x[1], (int)conformance_int(c, "batch_dims", 0));
}

static tl_scatter how_of(const conformance_case *c) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *name = conformance_text(c, "reduction", "none");
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (tl_scatter)i;
    return TL_SCATTER_REPLACE;
}

static void run_scatter_elements(conformance_case *c) {
    c->y[0] = tl_scatter_elements(c->x[0], c->x[1], c->x[2], axis_of(c, 0), how_of(c));
}

static void run_scatter_nd(conformance_case *c) { c->y[0] = tl_scatter_nd(c->x[0], c->x[1], c->x[2], how_of(c)); }

static void run_top_k(conformance_case *c) {
    int64_t k = conformance_int(c, "k", 0);
    whole(c, 1, &k, 1);
    conformance_exact(c);
    tl_top_k(c->x[0], axis_of(c, -1), k, conformance_int(c, "largest", 1) != 0, &c->y[0], &c->y[1]);
}

static void run_pad(conformance_case *c) {
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    int64_t pads[2 * TL_MAX_NDIM] = {0}, axes[TL_MAX_NDIM], before[TL_MAX_NDIM] = {0}, after[TL_MAX_NDIM] = {0};
    const char *mode = conformance_text(c, "mode", "constant");
    int ndim = tl_tensor_ndim(c->x[0]), how = 0;
    while (how < 3 && strcmp(mode, names[how]) != 0)
        how++;
    int n = whole(c, 1, pads, 2 * TL_MAX_NDIM) / 2, given = whole(c, 3, axes, TL_MAX_NDIM);
    if (c->n_in < 2)
        n = conformance_ints(c, -1, "pads", pads) / 2;
    for (int i = 0; i < n; i++) {
        int64_t axis = given ? (axes[i] < 0 ? axes[i] + ndim : axes[i]) : i;
        before[axis] = pads[i];
        after[axis] = pads[n + i];
    }
    conformance_exact(c);
    double value = conformance_has(c, "value") ? conformance_real(c, "value", 0) : conformance_first(c, 2, 0);
    c->y[0] = tl_pad(c->x[0], before, after, (tl_padding)how, value);
}

static void run_tile(conformance_case *c) {
    int64_t repeats[TL_MAX_NDIM] = {0};
    whole(c, 1, repeats, TL_MAX_NDIM);
    conformance_exact(c);
    c->y[0] = tl_tile(c->x[0], repeats);
}

const conformance_entry conformance_index[] = {
    {"Gather", run_gather},
    {"GatherElements", run_gather_elements},
    {"GatherND", run_gather_nd},
    {"Pad", run_pad},
    {"Scatter", run_scatter_elements},
    {"ScatterElements", run_scatter_elements},
    {"ScatterND", run_scatter_nd},
    {"Tile", run_tile},
    {"TopK", run_top_k},
    {NULL, NULL},
};
