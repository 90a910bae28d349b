/* Rows of experts times their own frozen weights, kept as int8 or NF4: one expert's weight at a time is written out in x's format
 * and let go, so that workspace is that of one expert (bitsandbytes' Linear4bit an expert, and its Experts4bit, do so too).
 * Backward is the same op the other way round: it reads the packed weights again, and nothing of x is kept. */
#include "op/moe.h"
#include "op/nf4.h"

#include <string.h>

typedef struct packed_attr {
    tl_dim experts, out;
    bool transposed; /* what is packed is [E, in, out] */
    bool bias, by_f16;
    uint8_t weights; /* tensors a weight is kept in: 2 of int8, as many of NF4 quantised once, 4 twice */
    bool int8;
} packed_attr;

/* in: x, offsets, the weight's tensors, [bias] */
enum { OFFSETS = 1, WEIGHT = 2 };

static int bias_at(const packed_attr *attr) { return WEIGHT + attr->weights; }

/* One expert's weight as it lies. */
static void sides(const packed_attr *attr, tl_dim in, tl_dim *rows, tl_dim *columns) {
    *rows = attr->transposed ? in : attr->out;
    *columns = attr->transposed ? attr->out : in;
}

static tl_status want_int8(tl_sig *sig, const packed_attr *attr, tl_dim in) {
    const tl_tensor *q = sig->in[WEIGHT], *scale = sig->in[WEIGHT + 1];
    char left[200], right[200];
    tl_dim rows, columns;
    int64_t all = 0;
    sides(attr, in, &rows, &columns);
    if (!tl_mul_i64(attr->experts.size, rows.size, &all))
        return tl_sig_fail(sig, TL_ERR_OVERFLOW, "weights of more than 2^63 rows");
    if (sig->needs_grad[WEIGHT] || sig->needs_grad[WEIGHT + 1])
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED,
                           "a quantised weight is frozen and its scales have no gradient; stop asking for one");
    if (q->dtype == TL_I8 && scale->dtype == TL_F32 && q->shape.ndim == 2 && scale->shape.ndim == 1 &&
        q->shape.dim[0].size == all && q->shape.dim[1].size == columns.size && scale->shape.dim[0].size == all &&
        tl_tensor_is_contiguous(q) && tl_tensor_is_contiguous(scale))
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_SHAPE, "weights are %s and scales %s; i8 [%lld, %lld] and f32 [%lld] would work",
                       tl_tensor_text(q, left, sizeof left), tl_tensor_text(scale, right, sizeof right), (long long)all,
                       (long long)columns.size, (long long)all);
}

static tl_status packed_infer(tl_sig *sig) {
    const packed_attr *attr = TL_ATTR(packed_attr, sig);
    const tl_tensor *x = sig->in[0];
    int64_t one = 0, all = 0;
    char text[200];
    tl_status status;
    if (x->dtype != TL_F64 && x->dtype != TL_F32 && x->dtype != TL_BF16 && x->dtype != TL_F16)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "x is %s; f64, f32, bf16 or f16 would work", tl_dtype_name(x->dtype));
    if (x->shape.ndim != 2 || attr->experts.size < 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s for %lld experts; [rows, in] would work",
                           tl_tensor_text(x, text, sizeof text), (long long)attr->experts.size);
    if ((status = tl_sig_want_readable(sig, 0)) || (status = tl_moe_want_offsets(sig, OFFSETS, attr->experts)))
        return status;
    tl_dim in = x->shape.dim[1];
    if (!tl_mul_i64(attr->out.size, in.size, &one) || !tl_mul_i64(one, attr->experts.size, &all))
        return tl_sig_fail(sig, TL_ERR_OVERFLOW, "weights of more than 2^63 elements");
    status = attr->int8 ? want_int8(sig, attr, in) : tl_sig_want_nf4(sig, WEIGHT, attr->weights == 4, all);
    if (status != TL_OK)
        return status;
    tl_shape shape = {.ndim = 2, .dim = {attr->experts, attr->out}};
    const tl_tensor *bias = attr->bias ? sig->in[bias_at(attr)] : NULL;
    if (bias && bias->dtype != x->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the bias is %s; %s, as x, would work", tl_dtype_name(bias->dtype),
                           tl_dtype_name(x->dtype));
    if (bias && (status = tl_sig_want_shape(sig, bias_at(attr), &shape, "the bias")))
        return status;
    shape.dim[0] = x->shape.dim[0];
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, x->dtype, &shape);
    return status;
}

/* Bytes an element of what stands between the packed weight and x's format: 0, nothing does. */
static int64_t between(const packed_attr *attr, tl_dtype dtype) {
    if (attr->int8)
        return dtype == TL_F32 ? 0 : 4; /* int8 times its scale is f32 */
    return attr->by_f16 ? 2 : 0;
}

/* Units of `unit` values that are read once more than there are, since one expert's n values end and the next one's begin within
 * one: Σ over experts of ⌊(last value)/unit⌋ − ⌊(first value)/unit⌋ + 1, less ⌈E·n/unit⌉. None where n is a multiple. */
static int64_t shared_units(int64_t experts, int64_t n, int64_t unit) {
    int64_t divisor = unit, rest = n % unit;
    while (rest > 0) {
        int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    int64_t ends_at_one = experts / (unit / divisor); /* experts whose last value ends a unit */
    return experts - ends_at_one - (experts * n % unit != 0);
}

/* What experts of NF4 read beyond each input once; *scales: blocks among it. */
static int64_t read_again(const packed_attr *attr, int64_t n, int64_t *scales) {
    const int64_t E = attr->experts.size;
    *scales = attr->int8 ? 0 : shared_units(E, n, TL_NF4_BLOCK);
    if (attr->int8)
        return 0;
    int64_t bytes = shared_units(E, n, 2) + (attr->weights == 4 ? 1 : 4) * *scales;
    if (attr->weights == 4) /* the scales' scales, and their mean each time */
        bytes += 4 * shared_units(E, n, (int64_t)TL_NF4_BLOCK * TL_NF4_SCALE_BLOCK) + 4 * (E - 1);
    return bytes;
}

static void packed_cost(const tl_sig *sig, tl_cost *cost) {
    const packed_attr *attr = TL_ATTR(packed_attr, sig);
    tl_ctx *ctx = sig->ctx;
    tl_dim rows = tl_in_dim(sig, 0, 0), in = tl_in_dim(sig, 0, 1), out = attr->out, E = attr->experts;
    int64_t size = tl_dtype_bytes(sig->in[0]->dtype), way = between(attr, sig->in[0]->dtype), scales;
    int64_t again = read_again(attr, out.size * in.size, &scales);
    cost->matmul = TL_AMOUNT(ctx, 2, rows, in, out);
    cost->arithmetic = TL_AMOUNT(ctx, 1, E, out, in); /* code·scale */
    if (attr->weights == 4) {
        tl_amount_more(ctx, &cost->arithmetic, 2, sig->in[WEIGHT + 1]->shape.dim, 1);
        tl_amount_more(ctx, &cost->arithmetic, 2 * scales, NULL, 0);
    }
    if (attr->bias)
        cost->arithmetic = tl_amount_add(ctx, cost->arithmetic, TL_AMOUNT(ctx, 1, rows, out));
    cost->workspace = tl_dim_add(ctx, tl_moe_offsets_workspace(sig, OFFSETS),
                                 tl_dim_mul(ctx, tl_dim_of(size + way), tl_dim_mul(ctx, out, in)));
    /* Beside inputs and output, each weight written out is traffic: to memory and back. */
    cost->written =
        tl_amount_add(ctx, tl_amount_shape(ctx, size, &sig->out[0].shape), TL_AMOUNT(ctx, size + way, E, out, in));
    cost->read = TL_AMOUNT(ctx, size + way, E, out, in);
    for (int k = 0; k < sig->n_in; k++)
        cost->read =
            tl_amount_add(ctx, cost->read, tl_amount_shape(ctx, tl_dtype_bytes(sig->in[k]->dtype), &sig->in[k]->shape));
    tl_amount_more(ctx, &cost->read, again, NULL, 0);
    cost->read_set = cost->written_set = true;
    tl_moe_even_load(cost, rows.size, out.size, in.size, E.size);
}

static void packed_saves(const tl_sig *sig, tl_saves *saves) {
    const packed_attr *attr = TL_ATTR(packed_attr, sig);
    uint32_t weight = ((1u << attr->weights) - 1) << WEIGHT;
    bool bias = attr->bias && sig->needs_grad[bias_at(attr)];
    saves->in = (sig->needs_grad[0] ? weight : 0) | (sig->needs_grad[0] || bias ? 1u << OFFSETS : 0);
}

/* ---- forward ---- */

typedef struct unpacking {
    const packed_attr *attr;
    tl_args *args;
    tl_array w, way; /* one expert's weight in x's format, and what stands between */
} unpacking;

static tl_array matrix_at(char *data, tl_dtype dtype, int64_t rows, int64_t columns) {
    return (tl_array){
        .data = data, .dtype = dtype, .ndim = 2, .size = {rows, columns}, .stride = {columns > 0 ? columns : 1, 1}};
}

static unpacking unpacking_of(const tl_sig *sig, tl_args *args, const packed_attr *attr) {
    unpacking u = {.attr = attr, .args = args};
    tl_dtype dtype = args->call.in[0].dtype;
    tl_dim rows, columns;
    sides(attr, tl_in_dim(sig, 0, 1), &rows, &columns);
    int64_t size = tl_dtype_bytes(dtype), way = between(attr, dtype), n = rows.size * columns.size;
    char *work = (char *)args->call.work + 8 * (attr->experts.size + 1);
    /* the wider of the two in front, so that both are aligned */
    char *w = work + (way > size ? way * n : 0), *at = work + (way > size ? 0 : size * n);
    u.w = matrix_at(w, dtype, rows.size, columns.size);
    u.way = way ? matrix_at(at, attr->int8 ? TL_F32 : TL_F16, rows.size, columns.size) : u.w;
    return u;
}

static void unpack(unpacking *u, int64_t expert) {
    tl_args *args = u->args;
    int64_t rows = u->way.size[0], columns = u->way.size[1], first = expert * rows * columns;
    tl_kcall call = {.engine = args->call.engine, .n_in = u->attr->weights, .n_out = 1};
    tl_quantize_attr plain = {.has_zero = false};
    for (int k = 0; k < u->attr->weights; k++)
        call.in[k] = args->call.in[WEIGHT + k];
    call.out[0] = u->way;
    if (u->attr->int8) {
        const tl_array *scale = &args->call.in[WEIGHT + 1];
        call.attr = &plain;
        call.in[0] = matrix_at(tl_moe_rows_from(&call.in[0], expert * rows), TL_I8, rows, columns);
        call.in[1] = matrix_at(tl_moe_rows_from(scale, expert * rows), TL_F32, rows, columns);
        call.in[1].stride[0] = 1;
        call.in[1].stride[1] = 0;
        args->kernels->dequantize(&call);
    } else {
        call.attr = &first;
        args->kernels->nf4_dequantize(&call);
    }
    if (u->way.data != u->w.data) {
        tl_kcall cast = {.engine = args->call.engine, .n_in = 1, .n_out = 1};
        cast.in[0] = u->way;
        cast.out[0] = u->w;
        args->kernels->copy(&cast);
    }
}

static tl_status packed_forward(const tl_sig *sig, tl_args *args) {
    const packed_attr *attr = TL_ATTR(packed_attr, sig);
    const tl_array *x = &args->call.in[0], *y = &args->call.out[0];
    const tl_array *bias = attr->bias ? &args->call.in[bias_at(attr)] : NULL;
    const int64_t *offsets;
    bool failed = false;
    tl_status status = tl_moe_read_offsets(sig, args, OFFSETS, x->size[0], &offsets);
    unpacking u = unpacking_of(sig, args, attr);
    int in = attr->transposed ? 0 : 1, out = 1 - in;
    tl_product p = {.engine = args->call.engine, .dtype = y->dtype, .failed = &failed};
    p.n = y->size[1];
    p.k = x->size[1];
    p.a_row = x->stride[0];
    p.a_col = x->stride[1];
    p.b_row = u.w.stride[in];
    p.b_col = u.w.stride[out];
    p.c_row = y->stride[0];
    /* Experts without rows too: no plan can know which they are. */
    for (int64_t e = 0; status == TL_OK && !failed && e < attr->experts.size; e++) {
        unpack(&u, e);
        p.m = offsets[e + 1] - offsets[e];
        p.a = tl_moe_rows_from(x, offsets[e]);
        p.b = u.w.data;
        p.c = tl_moe_rows_from(y, offsets[e]);
        if (bias) {
            p.bias = tl_moe_rows_from(bias, e);
            p.bias_stride = bias->stride[1];
        }
        args->kernels->product(&p);
    }
    return failed ? tl_product_failed(sig) : status;
}

/* ---- backward ---- */

static tl_status packed_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const packed_attr *attr = tl_saved_attr(saved);
    const char *site = saved->site;
    tl_tensor *g = gout[0], *offsets = tl_saved_in(saved, OFFSETS);
    int bias = bias_at(attr);
    if (tl_saved_needs(saved, 0)) {
        tl_frozen_experts w = {.experts = attr->experts, .transposed = !attr->transposed};
        tl_tensor *part[4] = {0};
        for (int k = 0; k < attr->weights; k++)
            part[k] = tl_saved_in(saved, WEIGHT + k);
        if (attr->int8) {
            w.q = part[0];
            w.scale = part[1];
        } else
            w.nf4 = (tl_nf4){part[0], part[1], part[2], part[3], attr->by_f16};
        gin[0] = tl_grouped_linear_packed_(g, &w, tl_saved_shape(saved, 0)->dim[1], NULL, offsets, site);
    }
    if (attr->bias && tl_saved_needs(saved, bias))
        gin[bias] = tl_grouped_sum_(g, offsets, attr->experts, site);
    return tl_ctx_status(ctx);
}

static void packed_sample(uint64_t seed, tl_case *c) {
    int64_t E = 1 + tl_sample_below(&seed, 4), rows = tl_sample_below(&seed, 17);
    int64_t in = 1 + tl_sample_below(&seed, 20), out = 1 + tl_sample_below(&seed, 20);
    packed_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.experts.size = E;
    attr.out = tl_dim_of(out);
    attr.experts = tl_dim_of(E);
    attr.transposed = tl_sample_below(&seed, 2);
    attr.bias = tl_sample_below(&seed, 2);
    attr.int8 = tl_sample_below(&seed, 3) == 0;
    attr.by_f16 = !attr.int8 && tl_sample_below(&seed, 2);
    attr.weights = attr.int8 || tl_sample_below(&seed, 2) ? 2 : 4;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, in});
    tl_moe_sample_offsets(c, E, rows);
    if (attr.int8) {
        int64_t lines = E * (attr.transposed ? in : out), size[2] = {lines, attr.transposed ? out : in};
        tl_sample_input(c, TL_I8, TL_FILL_INDEX, 2, size);
        c->in[WEIGHT].limit = 127;
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, &lines);
        for (int i = WEIGHT; i < WEIGHT + 2; i++)
            c->in[i].fixed_dtype = c->in[i].fixed_layout = c->in[i].frozen = true;
    } else
        tl_nf4_sample(c, attr.weights == 4, E * in * out);
    if (attr.bias)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){E, out});
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(grouped_linear_packed, sizeof(packed_attr), packed_infer, packed_cost, packed_saves, packed_forward, packed_grad,
      packed_sample);

tl_tensor *tl_grouped_linear_packed_(tl_tensor *x, const tl_frozen_experts *w, tl_dim out, tl_tensor *bias,
                                     tl_tensor *offsets, const char *site) {
    tl_tensor *in[7];
    packed_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.experts = w->experts;
    attr.out = out;
    attr.transposed = w->transposed;
    attr.bias = bias != NULL;
    attr.int8 = w->q != NULL;
    if (x && x->shape.ndim == 2 && !tl_is_readable_matrix(x))
        x = tl_copy_(x, site);
    in[0] = x;
    in[OFFSETS] = offsets;
    if (attr.int8) {
        in[WEIGHT] = w->q;
        in[WEIGHT + 1] = w->scale;
        attr.weights = 2;
    } else
        attr.weights = (uint8_t)tl_nf4_inputs(&w->nf4, in + WEIGHT);
    attr.by_f16 = !attr.int8 && w->nf4.by_f16 && x && x->dtype != TL_F16;
    int n = WEIGHT + attr.weights;
    if (bias)
        in[n++] = bias;
    return tl_run1(&tl_op_grouped_linear_packed, in, n, &attr, site);
}
