/* cli/op.c: tally op, the bill of one line of code. */
#include <string.h>

#include "plan_request.h"
#include "tally/bill.h"

enum { OWN_ON };

static const struct argp_option own_options[] = {
    {"on", TL_OWN(OWN_ON), "NAME", 0, "One device: H100, A100-80G, here; adds ridge, bound and time", 5},
    {0},
};

typedef struct tl_op_bill {
    tl_bill bill;
    tl_devices devices;
    tl_machine machine;
    bool on; /* a device is known */
    char text[512];
    const char *device, *optim, *precision;
    tl_optimizer_options optimizer;
    tl_notes assumed, left_out;
} tl_op_bill;

static int read_device(const tl_cli *cli, tl_op_bill *b) {
    tl_error error = {TL_OK, ""};
    const char *on = cli->own[OWN_ON];
    if (on && tl_parse_devices(on, &b->devices, &error) != TL_OK)
        return tl_usage(cli, "--on: %s", error.message);
    if (on && b->devices.count != 1)
        return tl_usage(cli, "--on %s: an op runs on one device; --on %s would work", on,
                        b->devices.here ? "here" : b->devices.accelerator->name);
    b->on = true;
    if (!on || b->devices.here) {
        b->devices = (tl_devices){.count = 1, .here = true};
        b->device = "this machine";
        bool measured = tl_machine_load(tl_machine_cores(), &b->machine, &error) == TL_OK;
        b->on = measured;
        if (!measured)
            tl_notes_add(&b->left_out, "ridge, bound and time: %s",
                         on ? "this machine is unknown until `tally machine' has measured it"
                            : "name a device, --on H100");
        else if (!on)
            tl_notes_add(&b->assumed, "--on here");
        return TL_EXIT_OK;
    }
    b->device = b->devices.accelerator->name;
    if (b->devices.note && b->devices.note[0])
        tl_notes_add(&b->assumed, "%s", b->devices.note);
    return TL_EXIT_OK;
}

static int make(const tl_cli *cli, tl_op_bill *b) {
    tl_error error = {TL_OK, ""};
    b->optim = tl_option_choice(cli, TL_OPTION_OPTIM), b->precision = tl_option_choice(cli, TL_OPTION_PRECISION);
    b->optimizer = tl_cli_optimizer(cli);
    tl_u128 tokens = cli->options.at[TL_OPTION_TOKENS].count;
    if (tokens > (tl_u128)1 << 40)
        return tl_usage(cli, "--tokens %s: an op works on 2^40 tokens at most", cli->options.at[TL_OPTION_TOKENS].text);
    tl_bill_options o = {.op = b->text,
                         .devices = b->on ? &b->devices : NULL,
                         .machine = &b->machine,
                         .tokens = (int64_t)tokens,
                         .precision = (tl_precision)cli->options.at[TL_OPTION_PRECISION].choice,
                         .optimizer = b->optimizer,
                         .peak = cli->options.at[TL_OPTION_PEAK].real};
    if (tl_bill_make(&o, &b->bill, &error) != TL_OK)
        return tl_failed(cli, &error);
    if (b->bill.tokens_by_default)
        tl_notes_add(&b->assumed, "--tokens %lld", (long long)b->bill.tokens);
    if (!tl_given(cli, TL_OPTION_PRECISION))
        tl_notes_add(&b->assumed, "--precision %s", b->precision);
    if (!tl_given(cli, TL_OPTION_OPTIM) && b->bill.parameters)
        tl_notes_add(&b->assumed, "--optim %s", b->optim);
    tl_notes_add(&b->assumed, "the input needs a gradient");
    if (b->on && b->bill.ridge <= 0)
        tl_notes_add(&b->left_out, "bound and time: the %s peak or bandwidth of %s is not known", b->precision,
                     b->device);
    tl_notes_add(&b->left_out, "what starting a kernel costs");
    tl_notes_add(&b->left_out, "caches: every byte of an input and an output is moved once");
    return TL_EXIT_OK;
}

/* FLOPs of a token, or of the whole where the op has no tokens. */
static double each(const tl_bill *b, tl_u128 count) {
    return tl_u128_double(count) / (b->unit[0] ? (double)b->tokens : 1);
}

static void out_bytes(const tl_cli *cli, const tl_op_bill *o) {
    const tl_bill *b = &o->bill;
    char w[TL_TEXT], g[TL_TEXT], m[TL_TEXT], s[TL_TEXT], all[TL_TEXT], wide[TL_TEXT], ratio[TL_TEXT], text[400];
    const char *dtype = b->dtype == TL_F32 ? "fp32" : tl_dtype_name(b->dtype);
    if (b->parameters) {
        tl_text_bytes((double)b->param_bytes, cli->units, w), tl_text_bytes((double)b->grad_bytes, cli->units, g);
        tl_text_bytes((double)b->master_bytes, cli->units, m);
        tl_text_bytes((double)b->step_bytes, cli->units, all);
        tl_text_plain((double)b->step_bytes / (double)b->parameters, 2, ratio);
        int n = snprintf(text, sizeof text, "weights %s %s", w, dtype);
        if (b->dtype != TL_F32)
            n += snprintf(text + n, sizeof text - (size_t)n, " (fp32 %s)",
                          tl_text_bytes((double)b->parameters * 4, cli->units, wide));
        n += snprintf(text + n, sizeof text - (size_t)n, " | training %s = %s B a parameter\n(w %s, grad %s", all,
                      ratio, w, g);
        if (b->master_bytes)
            n += snprintf(text + n, sizeof text - (size_t)n, ", fp32 master %s", m);
        bool two = o->optimizer.kind == TL_OPTIM_ADAMW || o->optimizer.kind == TL_OPTIM_ADAM;
        tl_text_bytes((double)b->optim_bytes / (two ? 2 : 1), cli->units, s);
        if (two)
            n += snprintf(text + n, sizeof text - (size_t)n, ", %s m %s, v %s", o->optim, s, s);
        else if (b->optim_bytes)
            n += snprintf(text + n, sizeof text - (size_t)n, ", %s state %s", o->optim, s);
        tl_out_item(cli, "bytes", "%s)", text);
        tl_text_bytes((double)b->built_bytes, cli->units, w), tl_text_bytes((double)b->backward_bytes, cli->units, g);
        tl_out_item(cli, "state", "%s built | %s after backward | %s after the step", w, g, all);
    }
    tl_text_bytes((double)b->input_bytes, cli->units, w), tl_text_bytes((double)b->output_bytes, cli->units, g);
    tl_text_bytes((double)b->saved_bytes, cli->units, s);
    if (b->output_bytes)
        tl_out_item(cli, "tensors", "input %s | output %s | kept for backward %s", w, g, s);
    else
        tl_out_item(cli, "tensors", "input %s | kept for backward %s", w, s);
}

static void out_flops(const tl_cli *cli, const tl_op_bill *o) {
    const tl_bill *b = &o->bill;
    char f[TL_TEXT], g[TL_TEXT], t[TL_TEXT], ratio[TL_TEXT + 32] = "", slash[24] = "", plain[TL_TEXT];
    tl_u128 forward = b->forward.matmul, backward = b->backward.matmul;
    if (b->unit[0])
        snprintf(slash, sizeof slash, "/%s", b->unit);
    if (forward == 0 && backward == 0) {
        tl_text_count(each(b, b->forward.arithmetic + b->forward.special), f);
        tl_text_count(each(b, b->backward.arithmetic + b->backward.special), g);
        tl_out_item(cli, "FLOPs",
                    "no matrix product: none by the literature's count; arithmetic and special calls: "
                    "forward %s%s, backward %s",
                    f, slash, g);
        return;
    }
    double both = each(b, forward) + each(b, backward);
    if (b->parameters && b->unit[0])
        snprintf(ratio, sizeof ratio, ", %s per %s",
                 tl_text_plain(both / (double)(b->parameters - b->biases), 2, plain),
                 b->biases ? "weight" : "parameter");
    tl_out_item(cli, "FLOPs", "forward %s%s + backward %s = %s%s", tl_text_count(each(b, forward), f), slash,
                tl_text_count(each(b, backward), g), tl_text_count(both, t), ratio);
    if (b->forward.matmul_causal != forward)
        tl_out_item(cli, "", "causal, T(T+1)/2 pairs: forward %s%s   backward %s",
                    tl_text_count(each(b, b->forward.matmul_causal), f), slash,
                    tl_text_count(each(b, b->backward.matmul_causal), g));
}

static const char *bound_text(tl_bound bound) { return bound == TL_BOUND_UNKNOWN ? "-" : tl_bound_name(bound); }

static void out_verdict(const tl_cli *cli, const tl_op_bill *o) {
    const tl_bill *b = &o->bill;
    const tl_bill_pass *p = &b->forward;
    char tokens[TL_TEXT], time[TL_TEXT], where[64] = "", peak[TL_TEXT], wide[TL_TEXT];
    if (b->unit[0])
        snprintf(where, sizeof where, "at %s %s%s, ", tl_text_grouped((tl_u128)b->tokens, tokens), b->unit,
                 b->tokens == 1 ? "" : "s");
    const char *dtype = b->dtype == TL_F32 ? "fp32" : tl_dtype_name(b->dtype);
    if (p->bound == TL_BOUND_UNKNOWN) {
        tl_out_item(cli, "forward", "%s%s: intensity %.4g FLOP/B", where, dtype, p->intensity);
        return;
    }
    bool over = p->intensity >= b->ridge;
    if (p->matmul)
        tl_out_item(cli, "forward", "%s%s: intensity %.*f FLOP/B %s ridge %.0f → %s-bound; %s at peak", where, dtype,
                    p->intensity < 10 ? 2 : 0, p->intensity, over ? "≥" : "<", b->ridge, bound_text(p->bound),
                    tl_text_duration(p->seconds, time));
    else
        tl_out_item(cli, "forward", "%s%s: no product, so memory-bound; %s at full bandwidth", where, dtype,
                    tl_text_duration(p->seconds, time));
    size_t source = strcspn(b->peak_source, ";");
    tl_out_item(cli, "ridge", "%.0f FLOP/B = %s / %s: %.*s", b->ridge, tl_text_rate(b->peak_flop_per_s, peak),
                tl_text_bandwidth(b->bandwidth, wide), (int)source, b->peak_source);
}

static void put_pass(tl_grid *grid, const tl_cli *cli, const char *name, const tl_bill_pass *p) {
    char text[TL_TEXT];
    tl_grid_string(grid, name, NULL);
    tl_grid_unsigned(grid, p->matmul, p->matmul ? tl_text_count(tl_u128_double(p->matmul), text) : "0");
    tl_grid_unsigned(grid, p->matmul_causal, NULL);
    tl_grid_unsigned(grid, p->arithmetic, tl_text_count(tl_u128_double(p->arithmetic), text));
    tl_grid_unsigned(grid, p->special, tl_text_count(tl_u128_double(p->special), text));
    tl_grid_unsigned(grid, p->read, tl_text_bytes(tl_u128_double(p->read), cli->units, text));
    tl_grid_unsigned(grid, p->written, tl_text_bytes(tl_u128_double(p->written), cli->units, text));
    snprintf(text, sizeof text, p->intensity < 10 ? "%.2f" : "%.0f", p->intensity);
    tl_grid_real(grid, p->intensity, text);
    if (p->bound == TL_BOUND_UNKNOWN) {
        tl_grid_null(grid);
        tl_grid_null(grid);
    } else {
        tl_grid_string(grid, tl_bound_name(p->bound), NULL);
        tl_grid_real(grid, p->seconds, tl_text_duration(p->seconds, text));
    }
}

static int out_passes(const tl_cli *cli, const tl_bill *b) {
    static const tl_column columns[] = {
        {"pass", "pass", false, false, false},
        {"matmul_flops", "matmul", true, false, false},
        {"matmul_causal_flops", NULL, true, false, false},
        {"arithmetic", "arith.", true, false, false},
        {"special_calls", "special", true, false, false},
        {"read_bytes", "read", true, false, false},
        {"written_bytes", "written", true, false, false},
        {"intensity_flop_per_byte", "FLOP/B", true, false, false},
        {"bound", "bound", false, false, false},
        {"seconds", "at peak", true, false, false},
    };
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    put_pass(grid, cli, "forward", &b->forward);
    put_pass(grid, cli, "backward", &b->backward);
    if (b->step.ops)
        put_pass(grid, cli, "step", &b->step);
    int status = tl_grid_print(cli, grid, "passes");
    tl_grid_free(grid);
    return status;
}

static int out_page(const tl_cli *cli, const tl_op_bill *o) {
    const tl_bill *b = &o->bill;
    char count[TL_TEXT], bias[TL_TEXT], about[160] = "no parameters", quoted[256];
    if (b->parameters)
        snprintf(about, sizeof about, "%s parameters", tl_text_grouped((tl_u128)(b->parameters - b->biases), count));
    if (b->biases) {
        size_t at = strlen(about);
        snprintf(about + at, sizeof about - at, " (+ bias %s)", tl_text_grouped((tl_u128)b->biases, bias));
    }
    tl_out_answer(cli, b->title, about);
    out_bytes(cli, o);
    out_flops(cli, o);
    out_verdict(cli, o);
    tl_out(cli, "\n");
    int status = out_passes(cli, b);
    tl_out(cli, "\n");
    tl_notes_out(cli, "assumed", &o->assumed);
    tl_notes_out(cli, "leaves out", &o->left_out);
    tl_cli_quote(b->title, quoted, sizeof quoted);
    const char *other = o->on && !o->devices.here ? "A100-80G" : "H100";
    if (b->forward.bound == TL_BOUND_MEMORY && b->forward.matmul && b->parameters && b->unit[0] && b->tokens < 1 << 20)
        tl_out_item(cli, "next:", "tally op %s --on %s --tokens %lld\n  (more rows read the weights once)", quoted,
                    o->devices.here ? "here" : o->device, (long long)b->tokens * 8);
    else
        tl_out_item(cli, "next:", "tally op %s --on %s", quoted, other);
    return status;
}

static void json_pass(tl_json *json, const char *name, const tl_bill_pass *p) {
    tl_json_key(json, name);
    tl_json_object(json);
    tl_json_put_unsigned(json, "matmul_flops", p->matmul);
    tl_json_put_unsigned(json, "matmul_causal_flops", p->matmul_causal);
    tl_json_put_unsigned(json, "arithmetic", p->arithmetic);
    tl_json_put_unsigned(json, "special_calls", p->special);
    tl_json_put_unsigned(json, "read_bytes", p->read);
    tl_json_put_unsigned(json, "written_bytes", p->written);
    tl_json_put_real(json, "intensity_flop_per_byte", p->intensity);
    if (p->bound != TL_BOUND_UNKNOWN) {
        tl_json_put_string(json, "bound", tl_bound_name(p->bound));
        tl_json_put_real(json, "seconds_at_peak", p->seconds);
    }
    tl_json_end(json);
}

static void json_bytes(tl_json *json, const tl_bill *b) {
    tl_json_key(json, "bytes");
    tl_json_object(json);
    tl_json_put_integer(json, "param", b->param_bytes);
    tl_json_put_integer(json, "grad", b->grad_bytes);
    tl_json_put_integer(json, "master", b->master_bytes);
    tl_json_put_integer(json, "optim", b->optim_bytes);
    tl_json_put_integer(json, "inference", b->param_bytes);
    tl_json_put_integer(json, "training", b->step_bytes);
    tl_json_put_integer(json, "built", b->built_bytes);
    tl_json_put_integer(json, "after_backward", b->backward_bytes);
    tl_json_put_integer(json, "after_step", b->step_bytes);
    tl_json_put_integer(json, "input", b->input_bytes);
    tl_json_put_integer(json, "output", b->output_bytes);
    tl_json_put_integer(json, "saved", b->saved_bytes);
    tl_json_end(json);
}

static int out_json(const tl_cli *cli, const tl_op_bill *o) {
    const tl_bill *b = &o->bill;
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "op", b->title);
    tl_json_put_integer(json, "parameters", b->parameters);
    tl_json_put_integer(json, "biases", b->biases);
    tl_json_put_string(json, "precision", o->precision);
    tl_json_put_string(json, "optim", o->optim);
    if (b->unit[0])
        tl_json_put_integer(json, "tokens", b->tokens);
    json_bytes(json, b);
    tl_json_key(json, "flops");
    tl_json_object(json);
    if (b->unit[0]) {
        tl_json_put_unsigned(json, "forward_per_token", b->forward.matmul / (tl_u128)b->tokens);
        tl_json_put_unsigned(json, "backward_per_token", b->backward.matmul / (tl_u128)b->tokens);
        if (b->parameters - b->biases > 0)
            tl_json_put_real(json, "per_parameter",
                             (each(b, b->forward.matmul) + each(b, b->backward.matmul)) /
                                 (double)(b->parameters - b->biases));
    }
    tl_json_put_unsigned(json, "forward", b->forward.matmul);
    tl_json_put_unsigned(json, "backward", b->backward.matmul);
    tl_json_put_string(json, "convention", "matmul FLOPs, 2 a multiply-add; attention full; biases no parameters here");
    tl_json_end(json);
    json_pass(json, "forward", &b->forward);
    json_pass(json, "backward", &b->backward);
    json_pass(json, "step", &b->step);
    if (b->ridge > 0) {
        tl_json_put_string(json, "device", o->device);
        tl_json_put_real(json, "peak_flop_per_s", b->peak_flop_per_s);
        tl_json_put_string(json, "peak_source", b->peak_source);
        tl_json_put_real(json, "bandwidth_bytes_per_s", b->bandwidth);
        tl_json_put_real(json, "ridge_flop_per_byte", b->ridge);
    }
    tl_notes_json(json, "assumptions", &o->assumed);
    tl_notes_json(json, "leaves_out", &o->left_out);
    return tl_cli_json_close(cli, json);
}

static int run(tl_cli *cli) {
    static tl_op_bill b; /* zeroed; large */
    for (int i = 0; i < cli->n_arguments; i++) {
        size_t at = strlen(b.text);
        if (at + strlen(cli->arguments[i]) + 2 >= sizeof b.text)
            return tl_usage(cli, "the op is longer than any there is; `tally op --help' lists them");
        snprintf(b.text + at, sizeof b.text - at, "%s%s", at ? " " : "", cli->arguments[i]);
    }
    int status = read_device(cli, &b);
    if (status == TL_EXIT_OK)
        status = make(cli, &b);
    if (status != TL_EXIT_OK)
        return status;
    if (cli->format == TL_FORMAT_JSON)
        return out_json(cli, &b);
    if (cli->format != TL_FORMAT_TABLE)
        return out_passes(cli, &b.bill);
    return out_page(cli, &b);
}

const tl_verb tl_verb_op = {
    .name = "op",
    .summary = "the bill of one line: parameters, bytes, FLOPs, intensity, bound",
    .group = TL_GROUP_BEFORE,
    .arguments = "OP SIZE…",
    .words = "linear matmul embedding layer_norm rms_norm softmax gelu silu relu add attention cross_entropy mlp block",
    .details = "The op runs on meta in a training of two steps; the second is the bill.\n\n"
               "  linear I O [bias]      matmul M K N          embedding V D\n"
               "  layer_norm D           rms_norm D            softmax T\n"
               "  gelu D                 silu D                relu D\n"
               "  add D                  cross_entropy V       mlp D F [gated]\n"
               "  attention H K T [G]                          block gpt2|llama D H T [G [F]]\n\n"
               "  tally op \"linear 1024 1024\" --on H100\n"
               "  tally op \"attention 32 128 4096 8\" --on A100-80G\n"
               "  tally op \"block gpt2 768 12 1024\" --precision fp32",
    .takes = TL_TAKES(TOKENS) | TL_TAKES(PRECISION) | TL_TAKES(OPTIM) | TL_TAKES(PEAK),
    .does = {[TL_OPTION_PRECISION] = TL_DOES(TL_PRECISION_FP32) | TL_DOES(TL_PRECISION_BF16) |
                                     TL_DOES(TL_PRECISION_BF16_MIXED) | TL_DOES(TL_PRECISION_FP16_MIXED),
             [TL_OPTION_OPTIM] = TL_DOES(TL_CHOICE_ADAMW) | TL_DOES(TL_CHOICE_ADAM) | TL_DOES(TL_CHOICE_SGD) |
                                 TL_DOES(TL_CHOICE_MOMENTUM) | TL_DOES(TL_CHOICE_ADAGRAD) | TL_DOES(TL_CHOICE_RMSPROP) |
                                 TL_DOES(TL_CHOICE_ADAMW8BIT) | TL_DOES(TL_CHOICE_OPTIM_NONE)},
    .says = {[TL_OPTION_TOKENS] = "Tokens the op works on (default 4096)",
             [TL_OPTION_PRECISION] = "fp32, bf16, bf16-mixed (default), fp16-mixed",
             [TL_OPTION_OPTIM] = "Optimizer: adamw (default), adam, sgd, momentum, adagrad, rmsprop, adamw8bit, none"},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 8,
    .run = run,
};
