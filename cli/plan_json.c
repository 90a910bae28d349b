/* cli/plan_json.c: the plan object of schema tally/1, and the table of categories. */
#include <string.h>

#include "groups.h"
#include "plan_account.h"
#include "tally/engine.h"

static const char *const category_about[TL_CATEGORY_COUNT] = {
    [TL_PARAM] = "weights",
    [TL_GRAD] = "gradients",
    [TL_MASTER] = "fp32 copies",
    [TL_OPTIM] = "optimizer states",
    [TL_SAVED] = "kept for backward",
    [TL_WORK] = "temporaries",
    [TL_CACHE] = "caches",
    [TL_DATA] = "tokens",
    [TL_COMM] = "communication",
};

int tl_account_table(const tl_cli *cli, const tl_account *a) {
    static const tl_column columns[] = {
        {"category", "category", false, false, false}, {"peak_bytes", "bytes at the peak", true, false, false},
        {"share", "share", true, false, false},        {"high_bytes", "own high", true, false, false},
        {"what", "what it is", false, false, false},
    };
    static const tl_column people[] = {
        {"category", "category", false, false, false},  {"peak_bytes", "bytes at the peak", true, false, false},
        {"size", "size", true, false, false},           {"share", "share", true, false, false},
        {"high_bytes", "own high", true, false, false}, {"what", "what it is", false, false, false},
    };
    const tl_plan *p = &a->plan;
    char text[TL_TEXT], exact[TL_TEXT];
    bool raw = cli->format == TL_FORMAT_CSV;
    tl_grid *grid = tl_grid_new(raw ? columns : people, raw ? 5 : 6);
    for (int c = 0; c <= TL_CATEGORY_COUNT; c++) {
        bool total = c == TL_CATEGORY_COUNT;
        int64_t bytes = total ? p->peak.bytes : p->peak.by_category[c], high = total ? p->peak.bytes : p->high[c];
        double share = p->peak.bytes > 0 ? (double)bytes / (double)p->peak.bytes : 0;
        if ((total && raw) || (!raw && bytes == 0 && high == 0))
            continue;
        tl_grid_string(grid, total ? "total" : tl_category_name((tl_category)c), NULL);
        tl_grid_integer(grid, bytes, tl_text_grouped((tl_u128)bytes, exact));
        if (!raw)
            tl_grid_string(grid, tl_text_bytes((double)bytes, cli->units, text), NULL);
        snprintf(text, sizeof text, "%.1f %%", share * 100);
        tl_grid_real(grid, share, text);
        if (total)
            tl_grid_null(grid);
        else
            tl_grid_integer(grid, high, tl_text_bytes((double)high, cli->units, text));
        tl_grid_string(grid, total ? "live at once" : category_about[c], NULL);
    }
    int status = tl_grid_print(cli, grid, "categories");
    tl_grid_free(grid);
    return status;
}

static void put_categories(tl_json *json, const char *key, const int64_t bytes[TL_CATEGORY_COUNT]) {
    tl_json_key(json, key);
    tl_json_object(json);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        tl_json_put_integer(json, tl_category_name((tl_category)c), bytes[c]);
    tl_json_end(json);
}

static void put_model(tl_json *json, const tl_account *a) {
    const tl_parameter_count *count = &a->plan.parameters;
    tl_json_key(json, "model");
    tl_json_object(json);
    tl_json_put_string(json, "name", a->request.options.model.name);
    tl_json_put_integer(json, "parameters", count->unique);
    tl_json_put_integer(json, "parameters_active", count->active);
    tl_json_put_integer(json, "parameters_non_embedding", count->non_embedding);
    tl_json_put_integer(json, "parameters_trainable", a->plan.trainable);
    tl_json_end(json);
    if (a->request.options.optimizer.n_groups > 0)
        tl_groups_json(json, &a->request.options.optimizer, &a->plan);
    const tl_lora_options *lora = &a->request.options.lora;
    if (lora->rank == 0)
        return;
    tl_json_key(json, "lora");
    tl_json_object(json);
    tl_json_put_integer(json, "rank", lora->rank);
    tl_json_put_real(json, "alpha", a->plan.lora_alpha);
    tl_json_put_real(json, "dropout", lora->dropout);
    tl_json_put_string(json, "targets", a->plan.lora_targets);
    if (lora->trained)
        tl_json_put_string(json, "trained", lora->trained);
    tl_json_put_string(json, "base", tl_lora_base_name(lora->base));
    tl_json_put_integer(json, "layers", a->plan.adapted_layers);
    tl_json_end(json);
}

static void put_flops(tl_json *json, const tl_account *a) {
    const tl_plan *p = &a->plan;
    bool causal = a->request.options.causal;
    tl_json_key(json, "flops");
    tl_json_object(json);
    tl_json_put_unsigned(json, "forward_per_token", causal ? p->forward_per_token_causal : p->forward_per_token);
    tl_json_put_unsigned(json, "per_token", causal ? p->per_token_causal : p->per_token);
    tl_json_put_unsigned(json, "per_step", causal ? p->per_step_causal : p->per_step);
    tl_json_put_unsigned(json, "hardware_per_step", p->hardware_per_step);
    tl_json_put_string(json, "attention", causal ? "causal" : "full");
    tl_json_put_string(json, "convention",
                       causal
                           ? "matmul FLOPs, 2 a multiply-add; attention over T(T+1)/2 pairs; forward + backward once"
                           : "matmul FLOPs, 2 a multiply-add; attention over all T*T pairs; forward + backward once");
    tl_json_put_unsigned(json, "per_step_full", p->per_step);
    tl_json_put_unsigned(json, "per_step_causal", p->per_step_causal);
    tl_json_put_unsigned(json, "arithmetic_per_step", p->arithmetic_per_step);
    tl_json_put_unsigned(json, "special_per_step", p->special_per_step);
    tl_json_end(json);
}

void tl_account_top_json(tl_json *json, const tl_plan_holder *top, int count) {
    tl_json_key(json, "top");
    tl_json_array(json);
    for (int i = 0; i < count; i++) {
        tl_json_object(json);
        tl_json_put_string(json, "module", top[i].module);
        tl_json_put_string(json, "op", top[i].op);
        tl_json_put_string(json, "category", tl_category_name(top[i].category));
        tl_json_put_integer(json, "bytes", top[i].bytes);
        tl_json_put_integer(json, "count", top[i].count);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static void put_memory(tl_json *json, const tl_account *a) {
    const tl_plan *p = &a->plan;
    tl_json_key(json, "memory");
    tl_json_object(json);
    tl_json_put_string(json, "device", a->request.device);
    if (p->capacity_bytes > 0) {
        tl_json_put_integer(json, "capacity_bytes", p->capacity_bytes);
        tl_json_put_integer(json, "usable_bytes", p->usable_bytes);
        tl_json_put_boolean(json, "fits", p->fits);
    }
    const tl_plan_peak *largest = tl_plan_largest_moment(p);
    tl_json_put_integer(json, "peak_bytes", largest->bytes);
    tl_json_put_string(json, "peak_phase", tl_phase_name(largest->phase));
    tl_json_put_string(json, "peak_module", largest->module);
    tl_json_put_string(json, "peak_op", largest->op);
    tl_json_put_string(json, "peak_site", largest->site);
    tl_json_put_string(json, "runner_up_phase", tl_phase_name(p->runner_up));
    tl_json_put_integer(json, "arena_bytes", p->arena_bytes);
    tl_json_put_integer(json, "needs_bytes", p->needs_bytes);
    put_categories(json, "by_category", largest->by_category);
    put_categories(json, "high_by_category", p->high);
    tl_json_key(json, "by_phase");
    tl_json_object(json);
    tl_json_put_integer(json, tl_phase_name(TL_PHASE_INIT), p->init.bytes);
    for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_STEP; phase++)
        tl_json_put_integer(json, tl_phase_name((tl_phase)phase), p->step[phase].bytes);
    tl_json_end(json);
    tl_json_key(json, "moments");
    tl_json_object(json);
    tl_json_put_integer(json, "init", p->init.bytes);
    tl_json_put_integer(json, "load", p->load.bytes);
    tl_json_put_integer(json, "step", p->peak.bytes);
    tl_json_put_integer(json, "save", p->save.bytes);
    tl_json_end(json);
    tl_json_key(json, "outside");
    tl_json_object(json);
    if (p->context_bytes > 0)
        tl_json_put_integer(json, "context", p->context_bytes);
    if (p->workspace_bytes > 0)
        tl_json_put_integer(json, "workspaces", p->workspace_bytes);
    if (p->slack_bytes > 0)
        tl_json_put_integer(json, "allocator", p->slack_bytes);
    tl_json_end(json);
    tl_json_key(json, "stages");
    tl_json_array(json);
    tl_json_object(json);
    tl_json_put_integer(json, "stage", 0);
    tl_json_put_integer(json, "peak_bytes", p->peak.bytes);
    tl_json_put_integer(json, "arena_bytes", p->arena_bytes);
    tl_json_end(json);
    tl_json_end(json);
    if (p->max_micro_batch >= 0)
        tl_json_put_integer(json, "max_micro_batch", p->max_micro_batch);
    tl_json_put_integer(json, "allocations_per_step", p->allocations);
    tl_account_top_json(json, p->top, p->n_top);
    tl_json_end(json);
}

static void put_layout(const tl_cli *cli, tl_json *json, const tl_account *a) {
    static const char *const ones[] = {"tp", "pp", "vpp", "cp", "ep"};
    const tl_plan *p = &a->plan;
    tl_json_key(json, "layout");
    tl_json_object(json);
    tl_json_put_integer(json, "devices", p->devices);
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++)
        tl_json_put_integer(json, ones[i], 1);
    tl_json_put_integer(json, "dp", p->devices);
    tl_json_put_integer(json, "zero", 0);
    tl_json_put_integer(json, "micro_batch", p->micro_batch);
    tl_json_put_integer(json, "global_batch", p->global_batch);
    if (a->request.options.model.family != TL_FAMILY_CRUNCHER)
        tl_json_put_integer(json, "seq", p->seq);
    tl_json_put_integer(json, "accumulation", p->accumulation);
    tl_json_put_string(json, "engine", a->request.options.engine->name);
    tl_json_put_string(json, "precision", tl_precision_name(a->request.options.precision));
    tl_json_put_boolean(json, "autocast", a->request.options.autocast);
    tl_json_put_string(json, "optim", tl_option_choice(cli, TL_OPTION_OPTIM));
    char recompute[32];
    tl_json_put_string(json, "recompute", tl_recompute_text(a->request.options.recompute, recompute, sizeof recompute));
    tl_choices_json(json, &a->request.options.choices);
    tl_json_end(json);
}

static void put_time(tl_json *json, const tl_account *a) {
    const tl_plan *p = &a->plan;
    if (p->step_seconds <= 0)
        return;
    tl_json_key(json, "time");
    tl_json_object(json);
    tl_json_put_real(json, "step_seconds", p->step_seconds);
    tl_json_put_real(json, "tokens_per_second", p->tokens_per_second);
    tl_json_put_real(json, "mfu", p->mfu);
    tl_json_put_real(json, "hfu", p->hfu);
    if (p->total_seconds > 0) {
        tl_json_put_real(json, "steps", p->steps);
        tl_json_put_real(json, "total_seconds", p->total_seconds);
    }
    tl_json_put_string(json, "bound", tl_bound_name(p->bound));
    tl_json_put_string(json, "basis",
                       a->request.options.mfu > 0 ? "mfu as given"
                       : p->measured_rates        ? "measured rates"
                                                  : "roofline: a lower bound");
    tl_json_put_real(json, "roofline_seconds", p->roofline_seconds);
    tl_json_put_real(json, "peak_flop_per_s", p->peak_flop_per_s);
    tl_json_put_string(json, "peak_source", p->peak_source);
    tl_json_key(json, "parts");
    tl_json_object(json);
    tl_json_put_real(json, "compute", p->compute_seconds);
    tl_json_put_real(json, "memory", p->memory_seconds);
    tl_json_put_real(json, "communication", p->communication_seconds);
    tl_json_end(json);
    tl_json_put_unsigned(json, "sent_bytes_per_device_step", p->sent_per_step);
    tl_json_end(json);
    if (p->total_seconds <= 0)
        return;
    tl_json_key(json, "cost");
    tl_json_object(json);
    tl_json_put_real(json, "device_hours", p->device_hours);
    tl_json_put_string(json, "currency", "USD");
    tl_json_put_real(json, "amount", p->amount);
    tl_json_end(json);
}

/* More FLOPs than as asked, or fewer: then below 0. */
static void put_extra(tl_json *json, tl_u128 asked, tl_u128 suggested) {
    bool fewer = suggested < asked;
    tl_u128 difference = fewer ? asked - suggested : suggested - asked;
    if (!fewer)
        tl_json_put_unsigned(json, "extra_flops", difference);
    else if (difference <= INT64_MAX)
        tl_json_put_integer(json, "extra_flops", -(int64_t)difference);
    else
        tl_json_put_real(json, "extra_flops", -tl_u128_double(difference));
    tl_json_put_real(json, "extra_percent", 100 * (tl_u128_double(suggested) / tl_u128_double(asked) - 1));
}

static void put_suggestions(tl_json *json, const tl_account *a) {
    tl_json_key(json, "suggestions");
    tl_json_array(json);
    for (int i = 0; i < a->advice.count; i++) {
        const tl_plan_suggestion *s = &a->advice.list[i];
        tl_json_object(json);
        tl_json_put_string(json, "change", s->change);
        tl_json_put_integer(json, "peak_bytes", s->peak_bytes);
        if (s->step_seconds > 0)
            tl_json_put_real(json, "step_seconds", s->step_seconds);
        put_extra(json, a->plan.hardware_per_step, s->hardware_per_step);
        tl_json_put_integer(json, "arena_bytes", s->bytes);
        tl_json_put_boolean(json, "fits", s->fits);
        tl_json_put_boolean(json, "tight",
                            s->fits && s->cost != TL_PLAN_COST_DEVICE &&
                                (double)s->needs > TL_PLAN_TIGHT * (double)a->plan.usable_bytes);
        tl_json_put_string(json, "effect", s->effect);
        tl_json_end(json);
    }
    tl_json_end(json);
    if (!tl_account_exceeds(a))
        return;
    tl_json_put_integer(json, "over_bytes", a->plan.needs_bytes - a->plan.usable_bytes);
    tl_json_put_integer(json, "state_bytes", a->advice.state_bytes);
    tl_json_put_boolean(json, "state_alone_exceeds", a->advice.state_exceeds);
    if (a->advice.largest_saving <= 0)
        return;
    tl_json_key(json, "largest_lever");
    tl_json_object(json);
    tl_json_put_string(json, "change", a->advice.largest_lever);
    tl_json_put_integer(json, "saves_bytes", a->advice.largest_saving);
    tl_json_end(json);
}

static void put_notes(tl_json *json, const tl_account *a) {
    const tl_plan *p = &a->plan;
    const tl_notes *defaults = &a->request.defaults;
    tl_json_key(json, "assumptions");
    tl_json_array(json);
    for (int i = 0; i < defaults->n; i++)
        tl_json_string(json, defaults->text[i]);
    for (int i = 0; i < p->n_assumptions; i++)
        tl_json_string(json, p->assumptions[i]);
    tl_json_end(json);
    tl_json_key(json, "leaves_out");
    tl_json_array(json);
    for (int i = 0; i < p->n_leaves_out; i++)
        tl_json_string(json, p->leaves_out[i]);
    tl_json_string(json, p->slack_bytes > 0 ? "memory.host_bytes: not known before a run"
                                            : "memory.host_bytes and memory.outside.allocator: not known before a run");
    if (p->max_micro_batch < 0)
        tl_json_string(json, "memory.max_micro_batch: `tally fit batch' finds it");
    if (p->total_seconds <= 0)
        tl_json_string(json, "time.total_seconds and cost: need --tokens and a known step time");
    tl_json_end(json);
}

int tl_account_json(const tl_cli *cli, const tl_account *a) {
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    put_model(json, a);
    put_flops(json, a);
    put_memory(json, a);
    put_layout(cli, json, a);
    put_time(json, a);
    put_suggestions(json, a);
    put_notes(json, a);
    tl_json_put_string(json, "command", a->command);
    if (a->timeline && tl_timeline_json(cli, json, a) != TL_EXIT_OK) {
        tl_json_free(json);
        return TL_EXIT_FAILED;
    }
    return tl_cli_json_close(cli, json);
}
