/* cli/explain_adamw.c: tally explain MODEL adamw, CS336's problem adamwAccounting. */
#include <string.h>

#include "explain_out.h"

/* The handout's run: 400K steps of 1024 sequences on an A100 at 19.5 TFLOP/s fp32 and half of it used. */
static const double STEPS = 400e3, BATCH = 1024, PEAK = 19.5e12, MFU = 0.5;
static const int64_t DEVICES[] = {1, 64, 256, 1024};
enum { N_DEVICES = sizeof DEVICES / sizeof DEVICES[0] };

static double days(double flops_a_sequence, double devices) {
    return flops_a_sequence * BATCH * STEPS / (PEAK * MFU * devices) / 86400;
}

typedef struct tl_way {
    const char *key, *words;
    double flops; /* of one sequence */
} tl_way;

static int ways_of(const tl_explained *e, const tl_explain_adamw *a, tl_way way[3]) {
    int n = 0;
    way[n++] = (tl_way){"six_p_tokens", "by 6·B·T·P",
                        TL_NAPKIN_FLOPS * (double)e->options.seq * tl_u128_double(a->params.value)};
    way[n++] = (tl_way){"matmuls", a->has_gate ? "by counted products, gated" : "by counted products",
                        tl_u128_double(a->flops)};
    if (a->has_gate)
        way[n++] = (tl_way){"matmuls_ungated", "by counted products, ungated", tl_u128_double(a->flops_ungated)};
    return n;
}

/* (a): parameters, activations, gradients, optimizer state. */
static void expressions_out(const tl_explained *e, const tl_explain_adamw *a) {
    const tl_cli *cli = e->cli;
    const char *params = tl_explained_text(&a->run, a->params.formula, 0);
    char value[TL_TEXT];
    tl_out(cli, "(a) expressions, fp32, 4 B an element\n");
    tl_out_item(cli, "params", "4·P, P = %s\n= %s", params, tl_explained_value(a->params.value, value));
    if (a->has_gate)
        tl_out_item(cli, "", "ungated: P = %s\n= %s", tl_explained_text(&a->ungated, a->params_ungated.formula, 0),
                    tl_explained_value(a->params_ungated.value, value));
    tl_out_item(cli, "activation", "4·(%s)\n= 4·%s at B = 1", tl_explained_text(&a->ungated, a->activations.formula, 0),
                tl_explained_value(a->activations.value, value));
    tl_out_item(cli, "",
                "the handout's list: outputs of the norms, QKV, QKᵀ, softmax, AV, output projection, W1, "
                "activation, W2, final norm, output embedding, and cross-entropy as one more copy of the "
                "logits; %s",
                a->has_gate ? "it has no gate, so it is read off a run of the ungated twin" : "read off the run");
    tl_out_item(cli, "gradients", "4·P");
    tl_out_item(cli, "optimizer", "8·P (m and v)");
    if (e->steps)
        tl_explained_steps_out(e, "activations, elements at B = 1", &a->activations);
}

static void batches_out(const tl_explained *e, const tl_explain_adamw *a) {
    const tl_cli *cli = e->cli;
    char each[TL_TEXT], fixed[TL_TEXT], peak[TL_TEXT];
    tl_out(cli, "(b) largest batch\n");
    tl_out_item(cli, "handout", "%s·batch + %s B%s: %lld in 80 GB (80e9), %lld in 80 GiB",
                tl_explained_value(a->per_sequence, each), tl_explained_value(a->fixed, fixed),
                a->has_gate ? ", parameters gated" : "", (long long)a->batch[0], (long long)a->batch[1]);
    if (a->has_gate)
        tl_out_item(cli, "", "%s·batch + %s B, parameters ungated: %lld in 80 GB, %lld in 80 GiB", each,
                    tl_explained_value(a->fixed_ungated, fixed), (long long)a->batch_ungated[0],
                    (long long)a->batch_ungated[1]);
    tl_out_item(cli, "ledger",
                "%lld in 80 GB, %lld in 80 GiB; its peak at batch 1 is %s B: what really lives at once "
                "(saved for backward, gradients as they come), each batch run on meta",
                (long long)a->batch_ledger[0], (long long)a->batch_ledger[1],
                tl_explained_value((tl_u128)a->peak_bytes, peak));
}

static void step_out(const tl_explained *e, const tl_explain_adamw *a) {
    char value[TL_TEXT];
    tl_out(e->cli, "(c) FLOPs of one AdamW step\n");
    tl_out_item(e->cli, "step", "%lld·P = %s (+ - × ÷ √, one each)", (long long)a->step_each,
                tl_explained_value(a->step.value, value));
    tl_out_item(e->cli, "each",
                "m 3, v 4, √v, + ε, times the step, ÷ and - 5, decay 2; what is the same for all elements "
                "counts nothing; PyTorch's order needs as many (decay 1, the correction of √v 1)");
}

static void days_out(const tl_explained *e, const tl_explain_adamw *a) {
    const tl_cli *cli = e->cli;
    tl_way way[3];
    int n = ways_of(e, a, way);
    tl_out(cli, "(d) 400K steps of 1024 sequences, A100 at 19.5 TFLOP/s fp32, MFU 0.50\n");
    for (int i = 0; i < n; i++)
        tl_out_item(cli, i ? "" : "days", "%.1f %s", days(way[i].flops, 1), way[i].words);
    char line[256] = "";
    for (int d = 0; d < N_DEVICES; d++) {
        double t = days(way[0].flops, (double)DEVICES[d]);
        size_t at = strlen(line);
        if (t > 730)
            snprintf(line + at, sizeof line - at, "%s%lld: %.1f years", at ? ", " : "", (long long)DEVICES[d],
                     t / 365.25);
        else
            snprintf(line + at, sizeof line - at, t < 10 ? "%s%lld: %.1f days" : "%s%lld: %.0f days", at ? ", " : "",
                     (long long)DEVICES[d], t);
    }
    tl_out_item(cli, "devices", "%s (by 6·B·T·P)", line);
}

static void adamw_text(const tl_explained *e, const tl_explain_adamw *a) {
    const tl_poly *const formulas[] = {a->params.formula, a->activations.formula, NULL};
    char line[160];
    snprintf(line, sizeof line, "%.100s: CS336's adamwAccounting", e->options.model.name);
    tl_out_answer(e->cli, line, "(assignment 1, handout v1.0.2)");
    expressions_out(e, a);
    batches_out(e, a);
    step_out(e, a);
    days_out(e, a);
    tl_explained_symbols_out(e, &a->ungated, formulas);
    tl_explained_assumed_out(e, &a->run);
}

static int adamw_json(const tl_explained *e, const tl_explain_adamw *a) {
    static const char *const units[] = {"80GB", "80GiB"};
    const tl_poly *const formulas[] = {a->activations.formula, a->params_ungated.formula, NULL};
    tl_way way[3];
    int n = ways_of(e, a, way);
    tl_json *json = tl_cli_json_open(e->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_explained_json(json, "adamw_activations", "elements", &a->activations, formulas);
    tl_explained_pair_json(json, &a->run, "parameters", a->params.value, a->params.formula);
    tl_explained_pair_json(json, &a->ungated, "parameters_ungated", a->params_ungated.value, a->params_ungated.formula);
    tl_json_put_unsigned(json, "bytes_per_sequence", a->per_sequence);
    tl_json_put_unsigned(json, "bytes_fixed", a->fixed);
    tl_json_put_unsigned(json, "bytes_fixed_ungated", a->fixed_ungated);
    tl_json_key(json, "max_batch");
    tl_json_object(json);
    for (int i = 0; i < 2; i++) {
        tl_json_key(json, units[i]);
        tl_json_object(json);
        tl_json_put_integer(json, "capacity_bytes", a->capacity[i]);
        tl_json_put_integer(json, "handout", a->batch[i]);
        tl_json_put_integer(json, "handout_ungated", a->batch_ungated[i]);
        tl_json_put_integer(json, "ledger", a->batch_ledger[i]);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_put_integer(json, "ledger_peak_bytes", a->peak_bytes);
    tl_explained_pair_json(json, &a->run, "step_flops", a->step.value, a->step.formula);
    tl_json_put_integer(json, "step_flops_per_parameter", a->step_each);
    tl_json_key(json, "days");
    tl_json_object(json);
    for (int i = 0; i < n; i++) {
        tl_json_key(json, way[i].key);
        tl_json_object(json);
        for (int d = 0; d < N_DEVICES; d++) {
            char key[32];
            snprintf(key, sizeof key, "%lld", (long long)DEVICES[d]);
            tl_json_put_real(json, key, days(way[i].flops, (double)DEVICES[d]));
        }
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_explained_assumed_json(e, &a->run, json);
    return tl_cli_json_close(e->cli, json);
}

int tl_explain_topic_adamw(tl_explained *e) {
    tl_explain_adamw a;
    tl_error error = {TL_OK, ""};
    const uint64_t ignored = TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(PRECISION) | TL_TAKES(OPTIM) |
                             TL_TAKES(FLOPS) | TL_TAKES_CHOICES | TL_TAKES_LORA;
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if ((ignored >> i & 1) && tl_given(e->cli, (tl_option)i))
            return tl_usage(e->cli,
                            "--%s: the handout's problem fixes it (fp32, AdamW, the batch is what is solved "
                            "for, attention in full)",
                            tl_option_name((tl_option)i));
    if (tl_explain_adamw_make(&e->options, &a, &error) != TL_OK)
        return tl_failed(e->cli, &error);
    int status = TL_EXIT_OK;
    if (e->cli->format == TL_FORMAT_JSON)
        status = adamw_json(e, &a);
    else if (e->cli->format != TL_FORMAT_TABLE)
        status = tl_explained_print_grid(e, &a.activations);
    else
        adamw_text(e, &a);
    tl_explain_adamw_free(&a);
    return status;
}
