/* hw/machine_rates.c: what to expect of this machine, from what was measured. Planner core: no libm, no I/O. */
#include "tally/machine.h"

/* As many neighbours as there are corners of a tetrahedron, the simplest figure around a point in three axes. */
#define NEIGHBOURS 4

typedef struct point {
    double at[3]; /* log2 of m, n, k */
} point;

typedef struct neighbour {
    double distance; /* squared */
    double rate;
} neighbour;

double tl_machine_peak(const tl_machine *machine, tl_dtype dtype) {
    if (!machine)
        return 0;
    switch (dtype) {
    case TL_F32:
        return machine->peak_fp32;
    case TL_BF16:
        return machine->peak_bf16;
    case TL_F64:
        return machine->peak_fp64;
    default:
        return 0;
    }
}

/* log2 with a straight line between powers of two: exact there, rising everywhere, at most 0.086 low between. */
static double log2_of(int64_t value) {
    int whole = 63 - __builtin_clzll((uint64_t)value);
    double power = (double)((uint64_t)1 << whole);
    return whole + ((double)value - power) / power;
}

static point point_of(int64_t m, int64_t n, int64_t k) { return (point){{log2_of(m), log2_of(n), log2_of(k)}}; }

/* Moves `p` into the box of what was measured, since rates have settled beyond its far sides. Below a near side a
 * product takes as long as one at that side, as vectors and tiles are filled up: the share of useful work is returned. */
static double into_box(const int64_t size[3], const int64_t least[3], const int64_t most[3], point *p) {
    double useful = 1;
    for (int i = 0; i < 3; i++) {
        int64_t inside = size[i];
        if (inside < least[i]) {
            useful *= (double)inside / (double)least[i];
            inside = least[i];
        } else if (inside > most[i]) {
            inside = most[i];
        }
        p->at[i] = log2_of(inside);
    }
    return useful;
}

static bool usable(const tl_machine_shape *shape, tl_dtype dtype) {
    return shape->dtype == dtype && shape->m > 0 && shape->n > 0 && shape->k > 0 && shape->flop_per_s > 0;
}

static int shapes_of(const tl_machine *machine) {
    return machine->n_shapes < 0 ? 0 : machine->n_shapes > TL_MACHINE_SHAPES ? TL_MACHINE_SHAPES : machine->n_shapes;
}

/* The box around the measured shapes of `dtype`; false when there is none. */
static bool box_of(const tl_machine *machine, tl_dtype dtype, int64_t least[3], int64_t most[3]) {
    bool any = false;
    for (int i = 0; i < shapes_of(machine); i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        if (!usable(shape, dtype))
            continue;
        const int64_t size[3] = {shape->m, shape->n, shape->k};
        for (int axis = 0; axis < 3; axis++) {
            least[axis] = !any || size[axis] < least[axis] ? size[axis] : least[axis];
            most[axis] = !any || size[axis] > most[axis] ? size[axis] : most[axis];
        }
        any = true;
    }
    return any;
}

/* The nearest NEIGHBOURS + 1, nearest first; returns how many. */
static int nearest_of(const tl_machine *machine, tl_dtype dtype, const point *p, neighbour near[NEIGHBOURS + 1]) {
    int n = 0;
    for (int i = 0; i < shapes_of(machine); i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        if (!usable(shape, dtype))
            continue;
        point q = point_of(shape->m, shape->n, shape->k);
        neighbour it = {0, shape->flop_per_s};
        for (int axis = 0; axis < 3; axis++)
            it.distance += (p->at[axis] - q.at[axis]) * (p->at[axis] - q.at[axis]);
        int at = n;
        while (at > 0 && near[at - 1].distance > it.distance)
            at--;
        if (at > NEIGHBOURS)
            continue;
        if (n <= NEIGHBOURS)
            n++;
        for (int j = n - 1; j > at; j--)
            near[j] = near[j - 1];
        near[at] = it;
    }
    return n;
}

/* Inverse-distance weights of the nearest (Shepard 1968, "A two-dimensional interpolation function for irregularly-spaced
 * data"), which fall to zero at the first shape left out so that nothing jumps where neighbours change (Franke & Nielson
 * 1980, "Smooth interpolation of large sets of scattered data"). What is averaged is time per FLOP, as times add up. */
double tl_machine_product_rate(const tl_machine *machine, tl_dtype dtype, int64_t m, int64_t n, int64_t k) {
    int64_t least[3] = {0}, most[3] = {0};
    const int64_t size[3] = {m, n, k};
    if (!machine || m < 1 || n < 1 || k < 1 || !box_of(machine, dtype, least, most))
        return 0;
    neighbour near[NEIGHBOURS + 1];
    point p;
    double useful = into_box(size, least, most, &p), weights = 0, time = 0, rate;
    int found = nearest_of(machine, dtype, &p, near);
    double edge = found > NEIGHBOURS ? 1 / (near[NEIGHBOURS].distance + 1e-12) : 0;
    for (int i = 0; i < found && i < NEIGHBOURS && near[0].distance > 0; i++) {
        double closer = 1 / near[i].distance - edge;
        double weight = closer > 0 ? closer * closer : 0;
        weights += weight;
        time += weight / near[i].rate;
    }
    rate = weights > 0 && time > 0 ? weights / time : near[0].rate;
    double peak = tl_machine_peak(machine, dtype);
    if (peak > 0 && rate > peak)
        rate = peak;
    return rate * useful;
}
