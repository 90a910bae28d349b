/* The bill of one line: the op itself, run on meta. */
#include "tally/bill.h"

#include "nn/net.h"
#include "plan/plan.h"
#include "tally/grad.h"
#include "tally/units.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

enum { SIZES = 8, INPUTS = 4, PARAMETERS = 32 };

typedef struct bill_run {
    tl_ctx *ctx;
    tl_dtype dtype;
    int64_t size[SIZES]; /* the numbers after the name */
    int n_size;
    bool option; /* "bias", "gated" */
    const char *family;
    int64_t rows; /* tokens */
    tl_tensor *leaf[INPUTS];
    int n_leaf, next_leaf;
    tl_parameter parameter[PARAMETERS];
    bool counted[PARAMETERS]; /* part of the op; a block's net has others around it */
    int n_parameter, next_parameter;
    tl_net *net; /* block */
    int64_t input_bytes;
    bool is_loss; /* what build returned is the loss itself */
} bill_run;

/* ---- what builders use: the first pass makes, later ones find again ---- */

static tl_tensor *leaf(bill_run *r, tl_dtype dtype, tl_shape shape) {
    if (r->next_leaf == r->n_leaf && r->n_leaf < INPUTS) {
        tl_tensor *made = tl_empty(r->ctx, dtype, shape, TL_DATA);
        if (!made)
            return NULL;
        r->leaf[r->n_leaf++] = tl_keep(made);
        r->input_bytes += tl_tensor_storage_bytes(made);
        if (dtype == r->dtype)
            tl_tensor_require_grad(made, true);
    }
    return r->leaf[r->next_leaf++];
}

/* An input as another op would hand it over: work, with a gradient to give back. */
static tl_tensor *input(bill_run *r, tl_shape shape) {
    tl_module_begin(r->ctx, "input", -1);
    tl_tensor *x = tl_copy(leaf(r, r->dtype, shape));
    tl_module_end(r->ctx);
    return x;
}

static tl_tensor *ids(bill_run *r, tl_shape shape) { return leaf(r, TL_I32, shape); }

static tl_tensor *parameter(bill_run *r, const char *name, tl_shape shape) {
    if (r->next_parameter == r->n_parameter && r->n_parameter < PARAMETERS) {
        tl_tensor *made = tl_empty(r->ctx, r->dtype, shape, TL_PARAM);
        if (!made)
            return NULL;
        tl_tensor_require_grad(made, true);
        r->counted[r->n_parameter] = true;
        r->parameter[r->n_parameter++] = (tl_parameter){.name = name, .tensor = tl_keep(made), .decay = true};
    }
    return r->parameter[r->next_parameter++].tensor;
}

static tl_dim dim(const bill_run *r, int i) { return tl_dim_of(r->size[i]); }

static tl_tensor *rows_of(bill_run *r, int64_t width) {
    return input(r, TL_SHAPE(r->ctx, tl_dim_of(r->rows), tl_dim_of(width)));
}

/* ---- the ops ---- */

static tl_tensor *linear(bill_run *r) {
    tl_tensor *x = rows_of(r, r->size[0]);
    tl_tensor *w = parameter(r, "weight", TL_SHAPE(r->ctx, dim(r, 1), dim(r, 0)));
    return tl_linear(x, w, r->option ? parameter(r, "bias", TL_SHAPE(r->ctx, dim(r, 1))) : NULL);
}

static tl_tensor *matmul(bill_run *r) {
    tl_tensor *a = input(r, TL_SHAPE(r->ctx, dim(r, 0), dim(r, 1)));
    return tl_matmul(a, input(r, TL_SHAPE(r->ctx, dim(r, 1), dim(r, 2))));
}

static tl_tensor *embedding(bill_run *r) {
    tl_tensor *table = parameter(r, "weight", TL_SHAPE(r->ctx, dim(r, 0), dim(r, 1)));
    return tl_embedding(table, ids(r, TL_SHAPE(r->ctx, tl_dim_of(r->rows))));
}

static tl_tensor *layer_norm(bill_run *r) {
    tl_tensor *x = rows_of(r, r->size[0]), *gain = parameter(r, "weight", TL_SHAPE(r->ctx, dim(r, 0)));
    return tl_layer_norm(x, gain, parameter(r, "bias", TL_SHAPE(r->ctx, dim(r, 0))), 1e-5);
}

static tl_tensor *rms_norm(bill_run *r) {
    tl_tensor *x = rows_of(r, r->size[0]);
    return tl_rms_norm(x, parameter(r, "weight", TL_SHAPE(r->ctx, dim(r, 0))), 1e-5);
}

static tl_tensor *softmax(bill_run *r) { return tl_softmax(rows_of(r, r->size[0]), 1.0, false); }
static tl_tensor *gelu(bill_run *r) { return tl_gelu_tanh(rows_of(r, r->size[0])); }
static tl_tensor *silu(bill_run *r) { return tl_silu(rows_of(r, r->size[0])); }
static tl_tensor *relu(bill_run *r) { return tl_relu(rows_of(r, r->size[0])); }

static tl_tensor *add(bill_run *r) {
    tl_tensor *a = rows_of(r, r->size[0]);
    return tl_add(a, rows_of(r, r->size[0]));
}

static tl_tensor *attention(bill_run *r) {
    int64_t heads = r->size[0], groups = r->n_size > 3 ? r->size[3] : heads, T = r->size[2];
    tl_dim B = tl_dim_of(r->rows / T);
    struct tl_net net = {.ctx = r->ctx};
    net.model.heads = heads, net.model.kv_heads = groups;
    net.symbols.G = tl_dim_of(groups);
    tl_shape shape = TL_SHAPE(r->ctx, B, net.symbols.G, dim(r, 2), dim(r, 1));
    tl_tensor *q = input(r, TL_SHAPE(r->ctx, B, dim(r, 0), dim(r, 2), dim(r, 1)));
    tl_tensor *k = input(r, shape);
    return tl_attend(&net, q, k, input(r, shape), &(tl_attend_options){0});
}

static tl_tensor *cross_entropy(bill_run *r) {
    tl_tensor *logits = rows_of(r, r->size[0]);
    r->is_loss = true;
    return tl_cross_entropy(logits, ids(r, TL_SHAPE(r->ctx, tl_dim_of(r->rows))), TL_IGNORE_INDEX);
}

static tl_tensor *mlp(bill_run *r) {
    tl_tensor *x = rows_of(r, r->size[0]);
    tl_tensor *up = tl_linear(x, parameter(r, "up", TL_SHAPE(r->ctx, dim(r, 1), dim(r, 0))), NULL);
    tl_tensor *hidden = NULL;
    if (r->option) { /* Shazeer 2020: (SiLU(x·gate) ⊙ x·up)·down */
        tl_tensor *gate = tl_linear(x, parameter(r, "gate", TL_SHAPE(r->ctx, dim(r, 1), dim(r, 0))), NULL);
        hidden = tl_mul(tl_silu(gate), up);
    } else {
        hidden = tl_gelu_tanh(up);
    }
    return tl_linear(hidden, parameter(r, "down", TL_SHAPE(r->ctx, dim(r, 0), dim(r, 1))), NULL);
}

/* The model's own code with one layer; what lies around the block is not counted. */
static bool make_net(bill_run *r) {
    tl_error error = {TL_OK, ""};
    tl_model model;
    bool llama = strcmp(r->family, "llama") == 0;
    if (tl_catalogue_model(llama ? "llama-2-7b" : "gpt2", &model, &error) != TL_OK) {
        tl_ctx_fail(r->ctx, error.status, "%s", error.message);
        return false;
    }
    int64_t width = r->size[0], heads = r->size[1];
    model.layers = 1, model.width = width, model.heads = heads, model.vocab = 2, model.context = r->size[2];
    model.kv_heads = r->n_size > 3 ? r->size[3] : heads;
    model.head_size = width / heads;
    model.ff = r->n_size > 4 ? r->size[4] : llama ? 0 : 4 * width;
    model.dropout_embedding = model.dropout_attention = model.dropout_residual = 0;
    if (llama && model.ff == 0) /* Llama: 2/3 of 4·D, up to a multiple of 256 (Touvron et al. 2023's code) */
        model.ff = (8 * width / 3 + 255) / 256 * 256;
    if (width % heads || tl_model_check(&model, &error) != TL_OK) {
        tl_ctx_fail(r->ctx, TL_ERR_ARGUMENT, "%s",
                    error.message[0] ? error.message
                                     : "the width is not a multiple of "
                                       "the heads");
        return false;
    }
    r->net = tl_net_new(r->ctx, &model, r->dtype);
    const tl_parameter *list;
    int count = r->net ? tl_net_parameters(r->net, &list) : 0;
    for (int i = 0; i < count && r->n_parameter < PARAMETERS; i++) {
        r->counted[r->n_parameter] = strstr(list[i].name, "h.0.") || strstr(list[i].name, "layers.0.");
        r->parameter[r->n_parameter++] = list[i];
    }
    return r->net != NULL;
}

static tl_tensor *block(bill_run *r) {
    if (!r->net && !make_net(r))
        return NULL;
    tl_dim B = tl_dim_of(r->rows / r->size[2]), T = dim(r, 2);
    tl_tensor *tokens = ids(r, TL_SHAPE(r->ctx, B, T)), *targets = ids(r, TL_SHAPE(r->ctx, B, T));
    r->is_loss = true;
    return tl_net_loss(r->net, tokens, targets);
}

typedef struct bill_row {
    const char *name, *grammar, *about;
    int low, high;      /* numbers after the name */
    const char *option; /* word that may follow, or NULL */
    tl_tensor *(*build)(bill_run *r);
    int seq;          /* index of T among the numbers: rows are a multiple of it; −1: none */
    const char *unit; /* "token", "row", "" */
} bill_row;

static const bill_row rows[] = {
    {"linear", "linear I O [bias]", "x·Wᵀ + b", 2, 2, "bias", linear, -1, "token"},
    {"matmul", "matmul M K N", "[M,K]·[K,N]", 3, 3, NULL, matmul, -1, ""},
    {"embedding", "embedding V D", "a look-up in [V,D]", 2, 2, NULL, embedding, -1, "token"},
    {"layer_norm", "layer_norm D", "LayerNorm, gain and bias", 1, 1, NULL, layer_norm, -1, "token"},
    {"rms_norm", "rms_norm D", "RMSNorm, gain", 1, 1, NULL, rms_norm, -1, "token"},
    {"softmax", "softmax T", "over rows of T", 1, 1, NULL, softmax, -1, "row"},
    {"gelu", "gelu D", "GELU (tanh)", 1, 1, NULL, gelu, -1, "token"},
    {"silu", "silu D", "x·σ(x)", 1, 1, NULL, silu, -1, "token"},
    {"relu", "relu D", "max(x, 0)", 1, 1, NULL, relu, -1, "token"},
    {"add", "add D", "a residual sum", 1, 1, NULL, add, -1, "token"},
    {"attention", "attention H K T [G]", "eager and causal: H heads of K over T, G key/value heads", 3, 4, NULL,
     attention, 2, "token"},
    {"cross_entropy", "cross_entropy V", "the loss over V logits", 1, 1, NULL, cross_entropy, -1, "token"},
    {"mlp", "mlp D F [gated]", "D→F, GELU, F→D; gated: SwiGLU", 2, 2, "gated", mlp, -1, "token"},
    {"block", "block gpt2|llama D H T [G [F]]", "one layer of the model's own code", 3, 5, NULL, block, 2, "token"},
};

const char *tl_bill_grammar(int index, const char **about) {
    if (index < 0 || index >= (int)(sizeof rows / sizeof rows[0]))
        return NULL;
    if (about)
        *about = rows[index].about;
    return rows[index].grammar;
}

/* ---- reading the line ---- */

static tl_status refuse(tl_error *error, const char *text, const char *what) {
    char list[600] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && at < sizeof list; i++) {
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? "; " : "", rows[i].grammar);
        at += n > 0 ? (size_t)n : 0;
    }
    return tl_fail(error, TL_ERR_ARGUMENT, "\"%.100s\": %.200s; it is one of: %s", text, what, list);
}

static tl_status parse(const char *text, bill_run *r, const bill_row **found, char title[128], tl_error *error) {
    char copy[128], what[200];
    char *word[SIZES + 3];
    int n = 0;
    if (strlen(text) >= sizeof copy)
        return refuse(error, text, "longer than any op");
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at && n < SIZES + 3;) {
        at += strspn(at, " \t");
        if (!*at)
            break;
        word[n++] = at;
        at += strcspn(at, " \t");
        if (*at)
            *at++ = '\0';
    }
    *found = NULL;
    for (size_t i = 0; n && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, word[0]) == 0)
            *found = &rows[i];
    if (!*found)
        return refuse(error, text, "no such op");
    int first = 1;
    if ((*found)->build == block) {
        r->family = n > 1 ? word[1] : "";
        if (strcmp(r->family, "gpt2") != 0 && strcmp(r->family, "llama") != 0)
            return refuse(error, text, "a block is of gpt2 or llama");
        r->family = r->family[0] == 'g' ? "gpt2" : "llama"; /* beyond this buffer */
        first = 2;
    }
    snprintf(title, 128, "%s%s%s", word[0], first == 2 ? " " : "", first == 2 ? r->family : "");
    for (int i = first; i < n; i++) {
        tl_error inner = {TL_OK, ""};
        size_t at = strlen(title);
        if ((*found)->option && strcmp(word[i], (*found)->option) == 0 && i == n - 1) {
            r->option = true;
            snprintf(title + at, 128 - at, " %s", word[i]);
            continue;
        }
        if (r->n_size == (*found)->high || tl_parse_size(word[i], &r->size[r->n_size], &inner) != TL_OK) {
            snprintf(what, sizeof what, "\"%.40s\" does not belong in %s", word[i], (*found)->grammar);
            return refuse(error, text, what);
        }
        if (r->size[r->n_size] < 1 || r->size[r->n_size] > (int64_t)1 << 40) {
            snprintf(what, sizeof what, "%.40s is no size; 1 to 2^40 would work", word[i]);
            return refuse(error, text, what);
        }
        snprintf(title + at, 128 - at, " %lld", (long long)r->size[r->n_size++]);
    }
    if (r->n_size < (*found)->low) {
        snprintf(what, sizeof what, "a size is missing: %s", (*found)->grammar);
        return refuse(error, text, what);
    }
    return TL_OK;
}

static tl_status count_rows(const bill_row *row, const tl_bill_options *o, bill_run *r, tl_error *error) {
    int64_t T = row->seq >= 0 ? r->size[row->seq] : 0;
    if (!row->unit[0] && o->tokens)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s has its sizes in itself; tokens change nothing: leave them out",
                       row->name);
    r->rows = o->tokens ? o->tokens : T ? T : row->unit[0] ? 4096 : 1;
    if (r->rows < 1 || r->rows > (int64_t)1 << 40)
        return tl_fail(error, TL_ERR_ARGUMENT, "%lld tokens; 1 to 2^40 would work", (long long)o->tokens);
    if (T && r->rows % T)
        return tl_fail(error, TL_ERR_ARGUMENT, "%lld tokens are no whole number of sequences of %lld; %lld would work",
                       (long long)r->rows, (long long)T, (long long)((r->rows / T + 1) * T));
    return TL_OK;
}

/* ---- running ---- */

static tl_tensor *build(bill_run *r, const bill_row *row) {
    r->next_leaf = r->next_parameter = 0;
    tl_module_begin(r->ctx, "op", -1);
    tl_tensor *y = row->build(r);
    tl_module_end(r->ctx);
    return y;
}

/* Of the op's parameters: 0 themselves, 1 their gradients, 2 master copies, 3 states. */
static int64_t bytes_of(const bill_run *r, const tl_optimizer *optimizer, int what) {
    int64_t sum = 0;
    for (int i = 0; i < r->n_parameter; i++) {
        tl_tensor *t[TL_OPTIM_MAX_STATES] = {NULL};
        if (!r->counted[i])
            continue;
        if (what == 0)
            t[0] = r->parameter[i].tensor;
        else if (what == 1)
            t[0] = tl_tensor_grad(r->parameter[i].tensor);
        else if (what == 2)
            t[0] = tl_optimizer_master(optimizer, i);
        else
            for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
                t[k] = tl_optimizer_state(optimizer, i, k);
        for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
            sum += t[k] ? tl_tensor_storage_bytes(t[k]) : 0;
    }
    return sum;
}

static bool is_op_pattern(const bill_run *r, const char *pattern) {
    if (r->net) /* "op.h.*.attn", "op.layers.*…": the block, not what lies around it */
        return strncmp(pattern, "op.h.*", 6) == 0 || strncmp(pattern, "op.layers.*", 11) == 0;
    return strcmp(pattern, "op") == 0 || (strncmp(pattern, "op.", 3) == 0 && strcmp(pattern, "op.input") != 0);
}

/* Kept for backward now: for a block what it made itself. */
static int64_t saved_now(const bill_run *r) {
    int64_t sum = 0;
    if (!r->net)
        return tl_ledger_live(r->ctx, TL_SAVED);
    for (const tl_storage *s = r->ctx->storages; s; s = s->next)
        if (s->category == TL_SAVED && is_op_pattern(r, tl_module_pattern(r->ctx, s->module)))
            sum += s->bytes;
    return sum;
}

static tl_status step(bill_run *r, const bill_row *row, tl_optimizer *optimizer, double lr, tl_bill *b) {
    tl_ctx *ctx = r->ctx;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_ledger_step_begin(ctx);
    tl_scope_begin(ctx);
    tl_tensor *y = build(r, row), *loss = y;
    b->saved_bytes = saved_now(r);
    if (y && !r->is_loss) {
        b->output_bytes = tl_tensor_count(y) * tl_dtype_bytes(tl_tensor_dtype(y));
        tl_phase_set(ctx, TL_PHASE_LOSS);
        loss = tl_mse(y, tl_empty(ctx, tl_tensor_dtype(y), *tl_tensor_shape(y), TL_DATA));
    }
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    tl_status status = loss ? tl_backward(ctx, loss, 1.0) : tl_ctx_status(ctx);
    b->grad_bytes = bytes_of(r, optimizer, 1);
    bool whole = tl_add_i64(b->built_bytes, b->grad_bytes, &b->backward_bytes);
    if (status == TL_OK)
        status = tl_optimizer_step(optimizer, lr);
    b->optim_bytes = bytes_of(r, optimizer, 3);
    whole = tl_add_i64(b->backward_bytes, b->optim_bytes, &b->step_bytes) && whole;
    if (!whole)
        status = tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "the bytes of this op and its states are beyond 63 bits");
    for (int i = 0; i < r->n_parameter; i++)
        tl_tensor_clear_grad(r->parameter[i].tensor);
    for (int i = 0; i < r->n_leaf; i++)
        tl_tensor_clear_grad(r->leaf[i]);
    tl_scope_end(ctx);
    return status;
}

typedef struct reader {
    tl_bill *bill;
    const bill_run *run;
    tl_plan_rates rates;
} reader;

static bool read_op(void *user, const tl_op_entry *e) {
    reader *d = user;
    tl_bill_pass *p = e->phase == TL_PHASE_BACKWARD ? &d->bill->backward
                      : e->phase == TL_PHASE_STEP   ? &d->bill->step
                                                    : &d->bill->forward;
    tl_plan_op_seconds t;
    if (e->phase != TL_PHASE_STEP && !is_op_pattern(d->run, e->pattern))
        return true;
    p->matmul += e->matmul.count, p->matmul_causal += e->matmul_causal.count; /* one step's: far from 2^128 */
    p->arithmetic += e->arithmetic.count, p->special += e->special.count;
    p->read += e->read.count, p->written += e->written.count;
    p->ops++;
    tl_plan_op_time(&d->rates, e, &t);
    p->seconds += t.compute > t.memory ? t.compute : t.memory;
    return true;
}

static void judge(tl_bill_pass *p, const tl_bill *b) {
    double bytes = tl_u128_double(p->read + p->written);
    double flops = tl_u128_double(p->matmul ? p->matmul : p->arithmetic + p->special);
    p->intensity = bytes > 0 ? flops / bytes : 0;
    if (b->ridge <= 0 || p->ops == 0 || bytes <= 0)
        p->seconds = 0;
    else
        p->bound = p->matmul && p->intensity >= b->ridge ? TL_BOUND_COMPUTE : TL_BOUND_MEMORY;
}

static void read_run(const tl_bill_options *o, const bill_run *r, tl_bill *b) {
    reader d = {.bill = b, .run = r};
    if (o->devices) {
        b->peak_flop_per_s =
            tl_plan_peak_rate(o->devices, o->machine, o->precision, b->peak_source, sizeof b->peak_source);
        b->bandwidth = tl_plan_bandwidth(o->devices, o->machine);
    }
    if (o->peak > 0) {
        b->peak_flop_per_s = o->peak;
        tl_plan_peak_by_hand(o->devices, o->precision, o->peak, b->peak_source, sizeof b->peak_source);
    }
    if (b->peak_flop_per_s > 0 && b->bandwidth > 0)
        b->ridge = b->peak_flop_per_s / b->bandwidth;
    d.rates.peak = b->peak_flop_per_s, d.rates.bandwidth = b->bandwidth;
    tl_ledger_each_op(r->ctx, read_op, &d);
    judge(&b->forward, b), judge(&b->backward, b), judge(&b->step, b);
    for (int i = 0; i < r->n_parameter; i++)
        if (r->counted[i]) {
            int64_t count = tl_tensor_count(r->parameter[i].tensor);
            b->parameters += count;
            b->biases +=
                tl_tensor_ndim(r->parameter[i].tensor) == 1 && strstr(r->parameter[i].name, "bias") ? count : 0;
        }
    b->input_bytes = r->input_bytes;
    if (r->net) /* [B,T,D] in and out, where the leaves are token ids */
        b->input_bytes = b->output_bytes = r->rows * r->size[0] * tl_dtype_bytes(r->dtype);
}

static tl_status run(const tl_bill_options *o, const bill_row *row, const tl_train_options *train, bill_run *r,
                     tl_bill *b) {
    tl_phase_set(r->ctx, TL_PHASE_INIT);
    tl_scope_begin(r->ctx);
    build(r, row); /* once, for the parameters */
    tl_scope_end(r->ctx);
    tl_optimizer *optimizer = NULL;
    if (tl_ctx_status(r->ctx) == TL_OK)
        optimizer = tl_optimizer_new(r->ctx, r->parameter, r->n_parameter, &train->optimizer);
    if (optimizer) {
        b->param_bytes = bytes_of(r, optimizer, 0), b->master_bytes = bytes_of(r, optimizer, 2);
        b->built_bytes = b->param_bytes + b->master_bytes;
        tl_status status = tl_record(r->ctx, true);
        for (int i = 0; i < 2 && status == TL_OK; i++) /* the second is the account: states exist by then */
            status = step(r, row, optimizer, train->optimizer.lr, b);
        if (status == TL_OK)
            read_run(o, r, b);
    }
    tl_tape_clear(r->ctx);
    tl_optimizer_free(optimizer);
    return tl_ctx_status(r->ctx);
}

tl_status tl_bill_make(const tl_bill_options *o, tl_bill *b, tl_error *error) {
    bill_run r = {.n_size = 0};
    const bill_row *row = NULL;
    tl_train_options train = {.optimizer = o->optimizer};
    memset(b, 0, sizeof *b);
    tl_status status = parse(o->op, &r, &row, b->title, error);
    if (status == TL_OK)
        status = count_rows(row, o, &r, error);
    if (status == TL_OK)
        status = tl_precision_apply(o->precision, &train, error);
    if (status != TL_OK)
        return status;
    r.ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, error);
    if (!r.ctx)
        return error ? error->status : TL_ERR_MEMORY;
    r.dtype = b->dtype = train.dtype;
    b->tokens = r.rows;
    b->tokens_by_default = row->unit[0] && !o->tokens;
    snprintf(b->unit, sizeof b->unit, "%s", row->unit);
    status = run(o, row, &train, &r, b);
    if (status != TL_OK)
        status = tl_fail(error, status, "%s", tl_ctx_error(r.ctx)->message);
    for (int i = 0; i < r.n_leaf; i++)
        tl_free(r.leaf[i]);
    for (int i = 0; i < r.n_parameter && !r.net; i++)
        tl_free(r.parameter[i].tensor);
    tl_net_free(r.net);
    tl_ctx_free(r.ctx);
    return status;
}
