/* Emulated float8: rounding with a delayed scale, the record of the largest magnitude, the next step's scale. See
 * tally/ops_fp8.h for the recipe and its sources. */
#include "op/inplace.h"
#include "op/elementwise.h"
#include "op/views.h"

#include "tally/ops_fp8.h"

#include <string.h>

static tl_status want_state(tl_sig *sig, int input) {
    const tl_tensor *t = sig->in[input];
    char text[200];
    if (t->dtype == TL_F32 && t->shape.ndim == 2 && t->shape.dim[0].size == TL_FP8_ROWS && t->shape.dim[1].size > 1 &&
        tl_tensor_is_contiguous(t))
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_SHAPE, "the state is %s; tl_fp8_state_new makes one",
                       tl_tensor_text(t, text, sizeof text));
}

static tl_status want_row(tl_sig *sig) {
    int row = TL_ATTR(tl_fp8_attr, sig)->row;
    if (row >= 0 && row < TL_FP8_ROWS)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_ARGUMENT, "row %d of the state; 0 input, 1 weight, 2 gradient", row);
}

static void *row_of(const tl_array *state, int row, int column) {
    return (char *)state->data + (row * state->size[1] + column) * (int64_t)sizeof(float);
}

static tl_fp8_attr attr_of(int row) {
    tl_fp8_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.format = row == TL_FP8_GRADIENT ? TL_F8E5M2 : TL_F8E4M3;
    attr.row = row;
    return attr;
}

static void sample_state(tl_case *c) {
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 2, (int64_t[]){TL_FP8_ROWS, 1 + TL_FP8_HISTORY});
    int at = c->n_in - 1;
    c->in[at].fixed_dtype = c->in[at].fixed_layout = true;
}

static void sample_row(uint64_t seed, tl_case *c) {
    tl_fp8_attr attr = attr_of((int)tl_sample_below(&seed, TL_FP8_ROWS));
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 0;
}

/* ---- rounding: in: x, state ---- */

static tl_status round_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = want_state(sig, 1)) || (status = want_row(sig)))
        return status;
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

/* Two × an element, by the scale and back; a change of format is no arithmetic. Of the state one number is read. */
static void round_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 2, 0);
    cost->read =
        tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[0]->dtype), &sig->in[0]->shape),
                      TL_AMOUNT(sig->ctx, 4, tl_dim_fixed(sig->ctx, tl_dim_of(1))));
    cost->read_set = true;
}

static tl_status round_forward(const tl_sig *sig, tl_args *args) {
    tl_fp8_attr attr = *TL_ATTR(tl_fp8_attr, sig);
    float scale;
    memcpy(&scale, row_of(&args->call.in[1], attr.row, 0), sizeof scale);
    attr.scale = (double)scale;
    args->call.attr = &attr;
    args->call.n_in = 1;
    return tl_args_run(sig, args, args->kernels->fp8_round);
}

/* Straight through: what rounding does to a value is no slope. */
static tl_status round_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    (void)saved;
    gin[0] = gout[0];
    return tl_ctx_status(ctx);
}

static void round_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->in[0].fixed_dtype = true; /* in f32: the differences that f64 is for see a staircase */
    sample_state(c);
    sample_row(seed, c);
}

TL_OP(fp8_round, sizeof(tl_fp8_attr), round_infer, round_cost, TL_SAVES_NONE, round_forward, round_grad, round_sample);

/* ---- the largest magnitude: in: state (in place), x ---- */

static tl_status amax_infer(tl_sig *sig) {
    tl_status status;
    if ((status = want_state(sig, 0)) || (status = tl_sig_want_float(sig, 1)) || (status = want_row(sig)))
        return status;
    return tl_inplace_infer_any(sig);
}

/* Comparisons are no FLOPs. x is read; of the state one number is read and written. */
static void amax_cost(const tl_sig *sig, tl_cost *cost) {
    tl_amount one = TL_AMOUNT(sig->ctx, 4, tl_dim_fixed(sig->ctx, tl_dim_of(1)));
    cost->read =
        tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), &sig->in[1]->shape), one);
    cost->written = one;
    cost->read_set = cost->written_set = true;
}

static tl_status amax_forward(const tl_sig *sig, tl_args *args) {
    tl_array state = args->call.out[0], *out = &args->call.out[0];
    out->data = row_of(&state, TL_ATTR(tl_fp8_attr, sig)->row, 1);
    out->ndim = 0;
    args->call.in[0] = args->call.in[1];
    args->call.n_in = 1;
    return tl_args_run(sig, args, args->kernels->absolute_max);
}

static void amax_sample(uint64_t seed, tl_case *c) {
    sample_state(c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2,
                    (int64_t[]){1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 40)});
    sample_row(seed, c);
    c->in_place = true;
}

TL_OP(fp8_amax, sizeof(tl_fp8_attr), amax_infer, amax_cost, TL_SAVES_NONE, amax_forward, TL_NO_GRAD, amax_sample);

/* Beside the expression: what is recorded of it is no value of it. */
static void record_amax(tl_tensor *state, tl_tensor *x, int row, const char *site) {
    extern const tl_op tl_op_fp8_amax;
    if (!state || !x)
        return;
    tl_ctx *ctx = state->ctx;
    bool recording = ctx->recording, in_region = ctx->in_region;
    tl_fp8_attr attr = attr_of(row);
    ctx->recording = ctx->in_region = false; /* nor does a region read it as part of one */
    tl_release(tl_run1(&tl_op_fp8_amax, (tl_tensor *[]){state, x}, 2, &attr, site));
    ctx->recording = recording;
    ctx->in_region = in_region;
}

/* ---- the next step's scales: in: state (in place) ---- */

static tl_status roll_infer(tl_sig *sig) {
    tl_status status = want_state(sig, 0);
    return status == TL_OK ? tl_inplace_infer_any(sig) : status;
}

/* One ÷ a row; comparisons and exponents are no FLOPs. */
static void roll_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = TL_AMOUNT(sig->ctx, 1, sig->in[0]->shape.dim[0]);
}

static tl_status roll_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->fp8_roll);
}

static void roll_sample(uint64_t seed, tl_case *c) {
    (void)seed;
    sample_state(c);
    c->n_out = 1;
    c->in_place = true;
    c->tolerance = 0;
}

TL_OP(fp8_roll, 0, roll_infer, roll_cost, TL_SAVES_NONE, roll_forward, TL_NO_GRAD, roll_sample);

/* ---- the gradient, rounded on its way back ---- */

/* Not an input: the tape would hold it as saved, and recording into it would be refused. NULL in the generic samples. */
typedef struct gradient_attr {
    tl_tensor *state;
} gradient_attr;

static tl_status gradient_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    return status;
}

static tl_status gradient_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const gradient_attr *attr = tl_saved_attr(saved);
    gin[0] = attr->state ? tl_fp8_round_(gout[0], attr->state, TL_FP8_GRADIENT, true, saved->site) : gout[0];
    return tl_ctx_status(ctx);
}

static void gradient_sample(uint64_t seed, tl_case *c) { tl_unary_sample(seed, c); }

TL_OP(fp8_gradient, sizeof(gradient_attr), gradient_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, gradient_grad,
      gradient_sample);

/* ---- calls ---- */

tl_tensor *tl_fp8_state_new(tl_ctx *ctx) {
    bool recording = ctx->recording;
    tl_dim rows = tl_dim_of(TL_FP8_ROWS), columns = tl_dim_of(1 + TL_FP8_HISTORY);
    tl_tensor *state = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, rows, columns), TL_OPTIM);
    ctx->recording = false;
    tl_tensor *history = tl_slice_(state, 1, 1, tl_dim_of(TL_FP8_HISTORY), 1, TL_HERE);
    tl_tensor *scale = tl_slice_(state, 1, 0, tl_dim_of(1), 1, TL_HERE);
    tl_release(tl_fill_(scale, 1.0, TL_HERE));
    tl_release(tl_fill_(history, 0.0, TL_HERE));
    tl_release(scale);
    tl_release(history);
    ctx->recording = recording;
    if (ctx->error.status != TL_OK) {
        tl_release(state);
        return NULL;
    }
    return tl_keep(state);
}

tl_tensor *tl_fp8_round_(tl_tensor *x, tl_tensor *state, int row, bool record, const char *site) {
    tl_fp8_attr attr = attr_of(row);
    if (record)
        record_amax(state, x, row, site);
    return tl_run1(&tl_op_fp8_round, (tl_tensor *[]){x, state}, 2, &attr, site);
}

tl_tensor *tl_fp8_gradient_(tl_tensor *x, tl_tensor *state, const char *site) {
    gradient_attr attr = {state};
    return tl_run1(&tl_op_fp8_gradient, (tl_tensor *[]){x}, 1, &attr, site);
}

tl_tensor *tl_fp8_roll_(tl_tensor *state, const char *site) {
    return tl_run1(&tl_op_fp8_roll, (tl_tensor *[]){state}, 1, NULL, site);
}
