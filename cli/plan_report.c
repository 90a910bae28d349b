/* cli/plan_report.c: the page of tally plan, for people. */
#include <string.h>

#include "advice.h"
#include "groups.h"
#include "plan_account.h"

static char *bytes_text(const tl_cli *cli, int64_t bytes, char buffer[TL_TEXT]) {
    return tl_text_bytes((double)bytes, cli->units, buffer);
}

static char *u128_grouped(tl_u128 value, char buffer[TL_TEXT]) { return tl_text_grouped(value, buffer); }

/* Of a moment: weights, gradients, copies and states against what activations take. */
static int64_t state_at_peak(const tl_plan *p) {
    return p->peak.by_category[TL_PARAM] + p->peak.by_category[TL_GRAD] + p->peak.by_category[TL_MASTER] +
           p->peak.by_category[TL_OPTIM];
}

static void out_answer(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    char need[TL_TEXT], has[TL_TEXT], rest[TL_TEXT], line[200], about[200];
    bytes_text(cli, p->needs_bytes, need), bytes_text(cli, p->usable_bytes, has);
    const char *each = p->devices > 1 ? "each " : "";
    if (p->usable_bytes <= 0) {
        snprintf(line, sizeof line, "needs %s", need);
        snprintf(about, sizeof about, "(the memory of %s is not known)", a->request.device);
        tl_out_answer(cli, line, about);
        return;
    }
    double percent = (double)p->needs_bytes / (double)p->usable_bytes * 100;
    if (p->fits) {
        snprintf(line, sizeof line, "fits: needs %s of %s usable", need, has);
        snprintf(about, sizeof about, "(%.*f %%; %s%s)", percent < 10 ? 1 : 0, percent, each, a->request.device);
    } else {
        snprintf(line, sizeof line, "does not fit: needs %s, has %s usable", need, has);
        bytes_text(cli, p->needs_bytes - p->usable_bytes, rest);
        snprintf(about, sizeof about, "(%s over; %s%s)", rest, each, a->request.device);
    }
    tl_out_answer(cli, line, about);
}

static void out_model(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    const tl_plan_options *o = &a->request.options;
    char count[TL_TEXT], more[TL_TEXT], part[TL_TEXT], seq[TL_TEXT + 16] = "", recompute[64] = "", kind[32];
    char active[TL_TEXT + 32] = "";
    if (p->parameters.active != p->parameters.unique)
        snprintf(active, sizeof active, "; a token passes %s", u128_grouped((tl_u128)p->parameters.active, part));
    if (o->recompute.kind != TL_RECOMPUTE_NONE)
        snprintf(recompute, sizeof recompute, ", recompute %s", tl_recompute_text(o->recompute, kind, sizeof kind));
    tl_out_item(cli, "model", "%s: %s parameters, %s of them non-embedding%s%s", o->model.name,
                u128_grouped((tl_u128)p->parameters.unique, count),
                u128_grouped((tl_u128)p->parameters.non_embedding, more), o->model.tied ? " (tied, counted once)" : "",
                active);
    if (o->lora.rank > 0)
        tl_out_item(cli, "adapters",
                    "rank %lld, alpha %g on %s in %lld layers: %s parameters are trained (%.2g %%); base %s",
                    (long long)o->lora.rank, p->lora_alpha, p->lora_targets, (long long)p->adapted_layers,
                    u128_grouped((tl_u128)p->trainable, count),
                    100 * (double)p->trainable / (double)p->parameters.unique, tl_lora_base_name(o->lora.base));
    if (o->optimizer.n_groups > 0)
        tl_groups_out(cli, &o->optimizer, p);
    if (o->model.family != TL_FAMILY_CRUNCHER)
        snprintf(seq, sizeof seq, " of %s tokens", tl_text_grouped((tl_u128)p->seq, more));
    tl_out_item(
        cli, "run", "%lld sequence%s%s at once, %lld micro-batch%s a step, %lld device%s: global batch %s; %s%s, %s%s",
        (long long)p->micro_batch, p->micro_batch == 1 ? "" : "s", seq, (long long)p->accumulation,
        p->accumulation == 1 ? "" : "es", (long long)p->devices, p->devices == 1 ? "" : "s (plain data parallel)",
        tl_text_grouped((tl_u128)p->global_batch, count), tl_precision_name(o->precision),
        o->autocast ? " by autocast" : "", tl_option_choice(cli, TL_OPTION_OPTIM), recompute);
}

/* " (2 weights + 2 gradients + 4 master + 8 states)": 16 bytes may be fp32's or a mixed precision's. Of adapters, which train few
 * parameters, no such sum is one of each parameter. */
static const char *terms_of_state(const tl_account *a, char text[128]) {
    static const struct {
        tl_category category;
        const char *name;
    } parts[] = {{TL_PARAM, "weights"}, {TL_GRAD, "gradients"}, {TL_MASTER, "master"}, {TL_OPTIM, "states"}};
    const tl_plan *p = &a->plan;
    char each[TL_TEXT];
    int n = 0;
    text[0] = '\0';
    if (a->request.options.lora.rank > 0)
        return text;
    for (int i = 0; i < 4; i++)
        if (p->high[parts[i].category] > 0)
            n += snprintf(text + n, (size_t)(128 - n), "%s%s %s", n ? " + " : " (",
                          tl_text_plain((double)p->high[parts[i].category] / (double)p->parameters.unique, 2, each),
                          parts[i].name);
    snprintf(text + n, (size_t)(128 - n), "%s", n ? ")" : "");
    return text;
}

static void out_peak(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    char terms[128], state[TL_TEXT], rest[TL_TEXT], count[TL_TEXT], runner[TL_TEXT], each[TL_TEXT];
    int64_t all = p->high[TL_PARAM] + p->high[TL_GRAD] + p->high[TL_MASTER] + p->high[TL_OPTIM];
    tl_text_plain((double)all / (double)p->parameters.unique, 2, each);
    tl_out_item(cli, "state", "%s = %s B × %s parameters%s | at the peak: state %s, activations and the rest %s",
                bytes_text(cli, all, state), each, tl_text_count((double)p->parameters.unique, count),
                terms_of_state(a, terms), bytes_text(cli, state_at_peak(p), runner),
                bytes_text(cli, p->peak.bytes - state_at_peak(p), rest));
    tl_out_item(cli, "peak at", "%s, %s, %s%s%s%s; runner-up: %s, %s", tl_phase_name(p->peak.phase),
                p->peak.module[0] ? p->peak.module : "no module", p->peak.op, p->peak.site[0] ? " (" : "", p->peak.site,
                p->peak.site[0] ? ")" : "", tl_phase_name(p->runner_up),
                bytes_text(cli, p->step[p->runner_up].bytes, runner));
    const tl_plan_peak *largest = tl_plan_largest_moment(p);
    if (largest != &p->peak)
        tl_out_item(cli, "most", "%s holds more than any step: %s", tl_phase_name(largest->phase),
                    bytes_text(cli, largest->bytes, runner));
}

static void out_phases(const tl_cli *cli, const tl_plan *p) {
    char text[512], size[TL_TEXT], load[TL_TEXT], step[TL_TEXT], save[TL_TEXT];
    int n = 0;
    for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_STEP && n >= 0 && n < (int)sizeof text; phase++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %s", n ? " | " : "", tl_phase_name((tl_phase)phase),
                      bytes_text(cli, p->step[phase].bytes, size));
    tl_out_item(cli, "phases", "%s", text);
    tl_out_item(cli, "moments", "init %s | load %s | step %s | save %s", bytes_text(cli, p->init.bytes, size),
                bytes_text(cli, p->load.bytes, load), bytes_text(cli, p->peak.bytes, step),
                bytes_text(cli, p->save.bytes, save));
    bytes_text(cli, p->arena_bytes, size);
    char over[TL_TEXT], held[TL_TEXT];
    if (p->slack_bytes)
        tl_out_item(cli, "allocator", "holds %s: the peak and %s of slack", bytes_text(cli, p->needs_bytes, held),
                    bytes_text(cli, p->slack_bytes, over));
    tl_out_item(cli, "arena", "%s: the peak and %s of alignment and fragmentation; %lld allocations a step", size,
                bytes_text(cli, p->arena_bytes - p->peak.bytes, over), (long long)p->allocations);
}

void tl_account_top(const tl_cli *cli, const tl_plan_holder *top, int count, int64_t whole) {
    static const tl_column columns[] = {
        {"bytes", "size", true, false, false},    {"share", "share", true, false, false},
        {"count", "tensors", true, false, false}, {"module", "held by", false, false, false},
        {"op", "made by", false, false, false},   {"category", "category", false, false, false},
    };
    char text[TL_TEXT];
    tl_grid *grid = tl_grid_new(columns, 6);
    for (int i = 0; i < count && i < 6; i++) {
        const tl_plan_holder *h = &top[i];
        double share = (double)h->bytes / (double)whole;
        tl_grid_integer(grid, h->bytes, bytes_text(cli, h->bytes, text));
        snprintf(text, sizeof text, "%.1f %%", share * 100);
        tl_grid_real(grid, share, text);
        tl_grid_integer(grid, h->count, NULL);
        tl_grid_string(grid, h->module[0] ? h->module : "the model", NULL);
        bool scratch = h->category == TL_WORK && !h->op[0] && !h->module[0]; /* one block a thread */
        tl_grid_string(grid, h->op[0] ? h->op : scratch ? "scratch" : "-", NULL);
        tl_grid_string(grid, tl_category_name(h->category), NULL);
    }
    tl_grid_print(cli, grid, "top");
    tl_grid_free(grid);
}

static void out_flops(const tl_cli *cli, const tl_account *a) {
    static const tl_column columns[] = {
        {"attention", "matmul FLOPs", false, false, false},
        {"forward", "forward/token", true, false, false},
        {"both", "with backward", true, false, false},
        {"ratio", "a parameter", true, false, false},
        {"step", "a step", true, false, false},
    };
    static const tl_column samples[] = {
        {"attention", "matmul FLOPs", false, false, false},
        {"forward", "forward/sample", true, false, false},
        {"both", "with backward", true, false, false},
        {"ratio", "a parameter", true, false, false},
        {"step", "a step", true, false, false},
    };
    const tl_plan *p = &a->plan;
    bool tokens = a->request.options.model.family != TL_FAMILY_CRUNCHER, causal = a->request.options.causal;
    char text[TL_TEXT], line[TL_TEXT + 16];
    tl_grid *grid = tl_grid_new(tokens ? columns : samples, 5);
    for (int i = 0; i < (tokens ? 2 : 1); i++) {
        tl_u128 forward = i ? p->forward_per_token_causal : p->forward_per_token;
        tl_u128 both = i ? p->per_token_causal : p->per_token;
        snprintf(line, sizeof line, "%s%s",
                 i        ? "attention causal"
                 : tokens ? "attention full"
                          : "all",
                 tokens && causal == (i == 1) ? " *" : "");
        tl_grid_string(grid, line, NULL);
        tl_grid_unsigned(grid, forward, tl_text_flops(tl_u128_double(forward), text));
        tl_grid_unsigned(grid, both, tl_text_flops(tl_u128_double(both), text));
        double ratio = tl_u128_double(both) / (double)p->parameters.unique;
        tl_grid_real(grid, ratio, tl_text_plain(ratio, 2, text));
        tl_u128 step = i ? p->per_step_causal : p->per_step;
        tl_grid_unsigned(grid, step, tl_text_flops(tl_u128_double(step), text));
    }
    tl_grid_print(cli, grid, "flops");
    tl_grid_free(grid);
    if (tokens)
        tl_out(cli, "* in MFU. Full: T² pairs; causal: T(T+1)/2. Arithmetic is counted apart (--json)\n");
    tl_out(cli, "\n");
}

/* What is executed beyond the model's own FLOPs, and which of them are not. */
static void out_hardware(const tl_cli *cli, const tl_plan *p) {
    char all[TL_TEXT], again[TL_TEXT], hidden[TL_TEXT];
    tl_u128 extra = p->again_per_step, less = p->per_step + extra - p->hardware_per_step;
    if (extra == 0 && less == 0)
        return;
    tl_text_flops(tl_u128_double(p->hardware_per_step), all), tl_text_flops(tl_u128_double(extra), again);
    tl_text_flops(tl_u128_double(less), hidden);
    tl_out_item(cli, "hardware", "%s a step executed: %s (%.2f %%) is computed again for backward%s%s%s", all, again,
                100 * tl_u128_double(extra) / tl_u128_double(p->per_step), less ? "\n" : "", less ? hidden : "",
                less ? " of hidden attention is not computed" : "");
}

static void out_time(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    const tl_plan_options *o = &a->request.options;
    char step[TL_TEXT], rate[TL_TEXT], peak[TL_TEXT], c[TL_TEXT], m[TL_TEXT], s[TL_TEXT], count[TL_TEXT];
    if (p->step_seconds <= 0)
        return;
    tl_text_duration(p->step_seconds, step), tl_text_count(p->tokens_per_second, rate);
    tl_out_item(cli, "time", "%s a step%s, %s %s/s", step,
                o->mfu > 0          ? " at this MFU"
                : p->measured_rates ? " at the rates measured here"
                                    : " at the least (roofline)",
                rate, o->model.family == TL_FAMILY_CRUNCHER ? "samples" : "tokens");
    tl_text_rate(p->peak_flop_per_s, peak);
    size_t source = strcspn(p->peak_source, ";"); /* the vendor's own comes first */
    bool bound = o->mfu <= 0 && !p->measured_rates;
    tl_out_item(cli, "MFU", "%s%.3f (%s attention; HFU %.3f) of %s, %.*s", bound ? "at most " : "", p->mfu,
                o->causal ? "causal" : "full", p->hfu, peak, (int)source, p->peak_source);
    tl_text_duration(p->compute_seconds, c), tl_text_duration(p->memory_seconds, m);
    tl_out_item(cli, "bound", "%s: ops bound by compute %s, by memory %s%s%s", tl_bound_name(p->bound), c, m,
                p->communication_seconds > 0 ? ", communication " : "",
                p->communication_seconds > 0 ? tl_text_duration(p->communication_seconds, s) : "");
    if (p->total_seconds <= 0)
        return;
    char hours[TL_TEXT], money[TL_TEXT], price[TL_TEXT];
    tl_text_duration(p->total_seconds, step), tl_text_count(p->device_hours, hours);
    tl_text_money(p->amount, money), tl_text_money(o->price, price), tl_text_count(p->steps, count);
    tl_out_item(cli, "whole run", "%s   (%s steps; %s device-hours; %s at %s/h)", step, count, hours, money, price);
}

static void out_missing(const tl_cli *cli, const tl_account *a) {
    static const char *const words[TL_CATEGORY_COUNT] = {
        "weights",     "gradients", "fp32 copies", "optimizer states", "activations kept for backward",
        "temporaries", "caches",    "data",        "communication"};
    const tl_plan *p = &a->plan;
    const tl_plan_advice *advice = &a->advice;
    char over[TL_TEXT], size[TL_TEXT], usable[TL_TEXT];
    int largest = 0;
    for (int c = 1; c < TL_CATEGORY_COUNT; c++)
        if (p->peak.by_category[c] > p->peak.by_category[largest])
            largest = c;
    tl_text_grouped((tl_u128)(p->needs_bytes - p->usable_bytes), over);
    tl_out_item(cli, "missing", "%s bytes; the largest part is %s: %s at the peak", over, words[largest],
                bytes_text(cli, p->peak.by_category[largest], size));
    bytes_text(cli, advice->state_bytes, size), bytes_text(cli, p->usable_bytes, usable);
    if (advice->state_exceeds) {
        char lean[TL_TEXT];
        int64_t devices = advice->state_bytes / p->usable_bytes + (advice->state_bytes % p->usable_bytes != 0);
        bool adapters = false, other = false;
        for (int i = 0; i < advice->count; i++) {
            bool trains_else = advice->list[i].cost == TL_PLAN_COST_ADAPTERS;
            adapters = adapters || (advice->list[i].fits && trains_else);
            other = other || (advice->list[i].fits && !trains_else);
        }
        tl_out_item(cli, "",
                    "the state alone, %s, exceeds the %s of a device, and so does the leanest this build knows (bf16, "
                    "sgd: %s): %s. Sharded, the state would fill %s of them; ZeRO and tensor "
                    "parallelism come with a later version",
                    size, usable, bytes_text(cli, advice->leanest_bytes, lean),
                    adapters && other ? "only a larger device or training something else fits (below)"
                    : adapters        ? "only training something else fits (below)"
                    : other           ? "only a larger device fits (below)"
                                      : "no single-device option of this build makes it fit",
                    tl_text_grouped((tl_u128)devices, over));
    }
}

/* All of them in one item. */
static void out_list(const tl_cli *cli, const char *label, const tl_notes *first, const char texts[][200], int n) {
    char text[4000] = "";
    size_t at = 0;
    for (int i = 0; i < first->n + n && at < sizeof text; i++) {
        bool own = i < first->n;
        int wrote =
            snprintf(text + at, sizeof text - at, "%s%s", i ? "; " : "", own ? first->text[i] : texts[i - first->n]);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    if (at)
        tl_out_item(cli, label, "%s", text);
}

static void out_next(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    char model[256];
    tl_cli_quote(a->model, model, sizeof model);
    tl_out_item(cli, "again:", "%s", a->command);
    if (tl_account_exceeds(a) && a->advice.count && a->advice.list[0].fits)
        tl_out_item(cli, "next:", "the same with %s", a->advice.list[0].change);
    else if (a->request.options.devices.here && !a->request.measured)
        tl_out_item(cli, "next:", "tally machine\n  (measures this machine once; then time and MFU are known)");
    else if (p->fits && p->max_micro_batch > p->micro_batch)
        tl_out_item(cli, "next:", "--micro-batch %lld is the largest that fits", (long long)p->max_micro_batch);
    else if (a->advice.state_exceeds)
        tl_out_item(cli, "next:", "tally fit model -g %s\n  (the largest model whose state fits there)",
                    cli->options.at[TL_OPTION_GPUS].text ? cli->options.at[TL_OPTION_GPUS].text : "here");
    else
        tl_out_item(cli, "next:", "tally fit context %s -g %s\n  (the longest sequence that fits)", model,
                    tl_given(cli, TL_OPTION_GPUS) ? cli->options.at[TL_OPTION_GPUS].text : "here");
}

int tl_account_page(const tl_cli *cli, const tl_account *a) {
    const tl_plan *p = &a->plan;
    const tl_notes none = {.n = 0};
    char text[TL_TEXT];
    out_answer(cli, a);
    if (a->timeline)
        return tl_timeline_page(cli, a);
    if (tl_account_exceeds(a)) {
        out_missing(cli, a);
        tl_advice_out(cli, p, &a->advice);
    }
    out_model(cli, a);
    out_peak(cli, a);
    tl_out(cli, "\n");
    int status = tl_account_table(cli, a);
    tl_out(cli, "\n");
    tl_account_top(cli, p->top, p->n_top, p->peak.bytes);
    tl_out(cli, "\n");
    out_phases(cli, p);
    if (p->max_micro_batch > 0)
        tl_out_item(cli, "largest", "micro-batch %s fits (one micro-batch a step)",
                    tl_text_grouped((tl_u128)p->max_micro_batch, text));
    tl_out(cli, "\n");
    out_flops(cli, a);
    out_hardware(cli, p);
    out_time(cli, a);
    out_list(cli, "assumed", &a->request.defaults, p->assumptions, p->n_assumptions);
    out_list(cli, "leaves out", &none, p->leaves_out, p->n_leaves_out);
    out_next(cli, a);
    return status;
}
