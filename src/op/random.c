/* Shared declarations of random fills. The numbers themselves come from the device's kernels. */
#include "op/random.h"

#include "base/stream.h"

#include <string.h>

void tl_random_sample(uint64_t seed, tl_case *c, double a, double b, double cut) {
    tl_inplace_sample(seed, c);
    tl_random_attr attr = {
        .seed = seed, .stream = 17, .first = (uint64_t)tl_sample_below(&seed, 100), .a = a, .b = b, .cut = cut};
    memcpy(c->attr, &attr, sizeof attr);
    c->random = true;
}

tl_tensor *tl_random_call(const tl_op *op, tl_tensor *x, double a, double b, double cut, const char *name,
                          int64_t first, const char *site) {
    if (!x)
        return NULL;
    if (!name || first < 0) {
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "%s (%s): %s", op->name, site,
                    name ? "the first position is negative"
                         : "a name is needed: it chooses the stream of random numbers");
        return NULL;
    }
    if (!(a - a == 0) || !(b - b == 0) || !(cut >= 0)) { /* x − x is not 0 for infinities and NaN */
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "%s (%s): the numbers %g, %g and %g must be finite", op->name, site, a, b,
                    cut);
        return NULL;
    }
    tl_random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.seed = x->ctx->seed_init;
    attr.stream = tl_stream_id("init", name);
    attr.first = (uint64_t)first;
    attr.a = a;
    attr.b = b;
    attr.cut = cut;
    return tl_run1(op, (tl_tensor *[]){x}, 1, &attr, site);
}
