/* GELU(a)·b (Shazeer 2020), saving a and b alone. The kernels of GELU and of products run over one output, so that neither
 * GELU(a) nor its gradient is a tensor. */
#include "op/rows.h"
#include "tally/ops_choices.h"

#include <string.h>

typedef struct geglu_attr {
    bool erf; /* else the tanh form */
} geglu_attr;

static tl_status want_equal(tl_sig *sig, int inputs) {
    static const char *const what[] = {"", "b", "the gradient"};
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    for (int i = 1; i < inputs && status == TL_OK; i++)
        status = tl_sig_want_shape(sig, i, &sig->in[0]->shape, what[i]);
    return status;
}

static tl_status geglu_infer(tl_sig *sig) {
    tl_status status = want_equal(sig, 2);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

/* `passes` over tensors of this size read, and written. */
static void traffic(const tl_sig *sig, tl_cost *cost, int64_t reads, int64_t writes) {
    int64_t bytes = tl_dtype_bytes(sig->in[0]->dtype);
    cost->read = tl_amount_shape(sig->ctx, reads * bytes, &sig->in[0]->shape);
    cost->written = tl_amount_shape(sig->ctx, writes * bytes, &sig->in[0]->shape);
    cost->read_set = cost->written_set = true;
}

static void geglu_cost(const tl_sig *sig, tl_cost *cost) {
    bool erf = TL_ATTR(geglu_attr, sig)->erf; /* GELU's 4 or 8 and one erf or tanh; ·b */
    cost->arithmetic = tl_amount_shape(sig->ctx, erf ? 5 : 9, &sig->in[0]->shape);
    cost->special = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
    traffic(sig, cost, 3, 2); /* a; what it became, and b */
}

static void geglu_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
}

static tl_status run(const tl_sig *sig, const tl_args *args, tl_kernel *kernel, const tl_array *out, const tl_array *a,
                     const tl_array *b) {
    tl_args one = *args;
    one.call.out[0] = *out;
    one.call.in[0] = *a;
    one.call.n_in = b ? 2 : 1;
    one.call.n_out = 1;
    if (b)
        one.call.in[1] = *b;
    return tl_args_run(sig, &one, kernel);
}

static tl_status geglu_forward(const tl_sig *sig, tl_args *args) {
    bool erf = TL_ATTR(geglu_attr, sig)->erf;
    const tl_kernels *k = args->kernels;
    const tl_array *y = &args->call.out[0], *in = args->call.in;
    tl_status status = run(sig, args, erf ? k->gelu_erf : k->gelu_tanh, y, &in[0], NULL);
    return status == TL_OK ? run(sig, args, k->mul, y, y, &in[1]) : status;
}

/* in: a, b, gradient → both gradients */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status = want_equal(sig, 3);
    for (int i = 0; i < 2 && status == TL_OK; i++)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    bool erf = TL_ATTR(geglu_attr, sig)->erf; /* GELU again, ·g; g·b, GELU's slope: 9 and two, or 16 and one */
    cost->arithmetic = tl_amount_shape(sig->ctx, erf ? 4 + 1 + 1 + 9 : 8 + 1 + 1 + 16, &sig->in[0]->shape);
    cost->special = tl_amount_shape(sig->ctx, erf ? 3 : 2, &sig->in[0]->shape);
    traffic(sig, cost, 1 + 2 + 2 + 2, 4);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    bool erf = TL_ATTR(geglu_attr, sig)->erf;
    const tl_kernels *k = args->kernels;
    const tl_array *da = &args->call.out[0], *db = &args->call.out[1], *in = args->call.in;
    tl_status status = run(sig, args, erf ? k->gelu_erf : k->gelu_tanh, db, &in[0], NULL);
    if (status == TL_OK)
        status = run(sig, args, k->mul, db, db, &in[2]);
    if (status == TL_OK)
        status = run(sig, args, k->mul, da, &in[1], &in[2]);
    if (status == TL_OK)
        status = run(sig, args, erf ? k->gelu_erf_backward : k->gelu_tanh_backward, da, &in[0], da);
    return status;
}

static void sample(uint64_t seed, tl_case *c, int inputs) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    geglu_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.erf = tl_sample_below(&seed, 2);
    for (int i = 0; i < inputs; i++)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = inputs - 1;
    c->tolerance = 1e-5;
}

static void backward_sample(uint64_t seed, tl_case *c) { sample(seed, c, 3); }

TL_OP(geglu_backward, sizeof(geglu_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      backward_sample);

static tl_status geglu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), gout[0]}, *out[2];
    tl_status status = tl_run(ctx, &tl_op_geglu_backward, in, 3, saved->attr, out, 2, saved->site);
    for (int i = 0; i < 2; i++) {
        if (tl_saved_needs(saved, i))
            gin[i] = out[i];
        else
            tl_release(out[i]);
    }
    return status;
}

static void geglu_sample(uint64_t seed, tl_case *c) { sample(seed, c, 2); }

TL_OP(geglu, sizeof(geglu_attr), geglu_infer, geglu_cost, geglu_saves, geglu_forward, geglu_grad, geglu_sample);

tl_tensor *tl_geglu_(tl_tensor *a, tl_tensor *b, bool erf, const char *site) {
    geglu_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.erf = erf;
    return tl_run1(&tl_op_geglu, (tl_tensor *[]){a, b}, 2, &attr, site);
}
