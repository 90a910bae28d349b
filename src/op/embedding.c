/* Rows of a table by index, and the table's gradient: rows added where they came from, in order of position. */
#include "op/rows.h"

#include <string.h>

static tl_status embedding_infer(tl_sig *sig) {
    tl_status status;
    char text[200];
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_want_index(sig, 1, "the ids")))
        return status;
    if (sig->in[0]->shape.ndim != 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the table is %s; [vocabulary, width] would work",
                           tl_tensor_text(sig->in[0], text, sizeof text));
    tl_shape shape = sig->in[1]->shape;
    if (shape.ndim >= TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the ids are %s; at most %d axes would work",
                           tl_tensor_text(sig->in[1], text, sizeof text), TL_MAX_NDIM - 1);
    shape.dim[shape.ndim++] = tl_in_dim(sig, 0, 1);
    tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return TL_OK;
}

static void embedding_cost(const tl_sig *sig, tl_cost *cost) {
    /* No arithmetic. Of the table, only the rows asked for are read. */
    cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->out[0].dtype), &sig->out[0].shape);
    cost->read = tl_amount_add(sig->ctx, cost->read,
                               tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), &sig->in[1]->shape));
    cost->read_set = true;
}

static void embedding_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 2;
}

static tl_status embedding_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->embedding);
}

/* The table itself is not an input of backward, so its height travels as an attribute. */
typedef struct embedding_backward_attr {
    tl_dim vocabulary;
} embedding_backward_attr;

/* in: ids, gradient */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_index(sig, 0, "the ids")) || (status = tl_sig_want_float(sig, 1)) ||
        (status = tl_sig_want_ndim(sig, 1, 1)))
        return status;
    tl_shape leading = tl_shape_leading(&sig->in[1]->shape);
    if ((status = tl_sig_want_shape(sig, 0, &leading, "the ids")))
        return status;
    tl_shape table = TL_SHAPE(sig->ctx, TL_ATTR(embedding_backward_attr, sig)->vocabulary, tl_in_dim(sig, 1, -1));
    tl_sig_add(sig, sig->in[1]->dtype, &table);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[1]->shape); /* each element is added once */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->embedding_backward);
}

static void sample_ids(uint64_t *seed, tl_case *c, int64_t limit, int64_t size[2]) {
    size[0] = 1 + tl_sample_below(seed, 3);
    size[1] = tl_sample_below(seed, 12);
    tl_sample_input(c, tl_sample_below(seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 2, size);
    c->in[c->n_in - 1].limit = limit;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[3], limit = 1 + tl_sample_below(&seed, 9);
    embedding_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.vocabulary.size = limit;
    sample_ids(&seed, c, limit, size);
    size[2] = tl_sample_below(&seed, 20);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(embedding_backward, sizeof(embedding_backward_attr), backward_infer, backward_cost, TL_SAVES_NONE,
      backward_forward, TL_NO_GRAD, backward_sample);

static tl_status embedding_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    embedding_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.vocabulary = tl_saved_shape(saved, 0)->dim[0];
    gin[0] = tl_run1(&tl_op_embedding_backward, (tl_tensor *[]){tl_saved_in(saved, 1), gout[0]}, 2, &attr, saved->site);
    return tl_ctx_status(ctx);
}

static void embedding_sample(uint64_t seed, tl_case *c) {
    int64_t size[2], limit = 1 + tl_sample_below(&seed, 9);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){limit, tl_sample_below(&seed, 20)});
    sample_ids(&seed, c, limit, size);
    c->n_out = 1;
    c->tolerance = 0;
}

TL_OP(embedding, 0, embedding_infer, embedding_cost, embedding_saves, embedding_forward, embedding_grad,
      embedding_sample);

tl_tensor *tl_embedding_(tl_tensor *table, tl_tensor *ids, const char *site) {
    return tl_run1(&tl_op_embedding, (tl_tensor *[]){table, ids}, 2, NULL, site);
}
