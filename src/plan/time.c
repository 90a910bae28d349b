/* The time model: per op the largest of FLOPs ÷ rate, bytes ÷ bandwidth and bytes sent ÷ link, summed; nothing overlaps.
 * Rates of products come from this machine's table for `here`; for an accelerator they are its dense peak, so that the
 * sum is a lower bound and says so. */
#include "plan/plan.h"
#include "tally/engine.h"

#include "hw/assumptions.h"

#include <stdio.h>
#include <string.h>

static tl_rate rate_of(tl_precision precision) {
    static const tl_rate rates[] = {TL_RATE_FP32, TL_RATE_BF16, TL_RATE_BF16, TL_RATE_FP16, TL_RATE_FP8};
    return (unsigned)precision < 5 ? rates[precision] : TL_RATE_BF16;
}

/* What products are computed in here: emulated float8 in bf16. */
static tl_dtype dtype_of(tl_precision precision) {
    return precision == TL_PRECISION_FP32 ? TL_F32 : precision == TL_PRECISION_FP16_MIXED ? TL_F16 : TL_BF16;
}

double tl_plan_peak_rate(const tl_devices *devices, const tl_machine *machine, tl_precision precision, char *source,
                         size_t size) {
    if (devices->here) {
        double rate = machine ? tl_machine_peak(machine, dtype_of(precision)) : 0;
        snprintf(source, size, rate > 0 ? "measured here (%s, %d threads)" : "not measured (tally machine)",
                 machine ? machine->cpu : "", machine ? machine->threads : 0);
        return rate;
    }
    const tl_accelerator *a = devices->accelerator;
    if (!a)
        return 0;
    tl_rate rate = rate_of(precision);
    snprintf(source, size, "%s %s dense; %s", a->name, tl_rate_name(rate), a->source);
    return a->rate[rate];
}

void tl_plan_peak_by_hand(const tl_devices *devices, tl_precision precision, double peak, char *source, size_t size) {
    const tl_accelerator *a = devices ? devices->accelerator : NULL;
    const tl_rate rate = rate_of(precision);
    const double dense = a ? a->rate[rate] : 0, sparse = a ? dense * a->sparse_factor : 0;
    if (sparse > 0 && peak > sparse * 0.99 && peak < sparse * 1.01)
        snprintf(source, size, "given by hand: the figure WITH 2:4 sparsity of %s, whose dense %s peak is %.4g TFLOP/s",
                 a->name, tl_rate_name(rate), dense / 1e12);
    else
        snprintf(source, size, "given by hand, dense as far as we know");
}

void tl_plan_capacity(const tl_devices *devices, const tl_machine *machine, const tl_engine *engine, int64_t *capacity,
                      int64_t *usable, int64_t *context) {
    *capacity = *usable = *context = 0;
    if (devices->here) {
        if (machine) {
            *capacity = machine->memory_bytes;
            *usable = machine->available_bytes;
        }
        return;
    }
    const tl_accelerator *a = devices->accelerator;
    if (!a)
        return;
    *capacity = a->memory_bytes ? a->memory_bytes : a->label_bytes;
    int64_t visible = a->driver_bytes ? a->driver_bytes : *capacity;
    const tl_engine *e = engine ? engine : tl_engine_at(0);
    int64_t outside = e->context_bytes + e->workspaces * e->workspace_bytes;
    *context = e->context_bytes;
    *usable = visible > outside ? visible - outside : 0;
}

void tl_plan_op_time(const tl_plan_rates *r, const tl_op_entry *e, tl_plan_op_seconds *t) {
    double rate = r->machine && e->m > 0 ? tl_machine_product_rate(r->machine, e->dtype, e->m, e->n, e->k) : 0;
    if (rate <= 0)
        rate = r->fp8_net && e->m > 0 && !tl_net_is_fp8_layer(r->fp8_net, e->pattern) ? r->peak_beside : r->peak;
    double bytes = tl_u128_double(e->read.count) + tl_u128_double(e->written.count);
    t->compute = rate > 0 ? tl_u128_double(e->executed.count) / rate : 0;
    t->memory = r->bandwidth > 0 ? bytes / r->bandwidth : 0;
    t->sent = r->link > 0 ? tl_u128_double(e->sent.count) / r->link : 0;
}

typedef struct clock {
    tl_plan_rates rates;
    double compute, memory, communication;
} clock;

static bool add_op(void *user, const tl_op_entry *e) {
    clock *c = user;
    tl_plan_op_seconds t;
    tl_plan_op_time(&c->rates, e, &t);
    if (t.sent > 0)
        c->communication += t.sent > t.memory ? t.sent : t.memory;
    else if (t.compute >= t.memory)
        c->compute += t.compute;
    else
        c->memory += t.memory;
    return true;
}

double tl_plan_bandwidth(const tl_devices *devices, const tl_machine *machine) {
    if (!devices->here)
        return devices->accelerator ? devices->accelerator->bandwidth : 0;
    return machine && machine->n_levels > 0 ? machine->level[machine->n_levels - 1].bytes_per_s : 0;
}

static void note_time(const tl_plan_options *o, tl_plan *p) {
    if (p->peak_flop_per_s <= 0 && o->devices.here && o->precision == TL_PRECISION_FP16_MIXED)
        tl_plan_note(p->leaves_out, &p->n_leaves_out,
                     "time: the reference computes fp16 products here, and its rate is not measured");
    else if (p->peak_flop_per_s <= 0 && o->devices.here)
        tl_plan_note(p->leaves_out, &p->n_leaves_out,
                     "time: the %s peak of this machine is unknown until `tally machine' has measured it",
                     tl_precision_name(o->precision));
    else if (p->peak_flop_per_s <= 0)
        tl_plan_note(p->leaves_out, &p->n_leaves_out, "time: the peak of this device in %s is not known",
                     tl_precision_name(o->precision));
    else if (o->mfu > 0)
        tl_plan_note(p->assumptions, &p->n_assumptions, "MFU %.3g as given", o->mfu);
    else if (!p->measured_rates)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "time is a lower bound: every product at peak, every byte at full bandwidth, nothing overlaps");
    else
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "products at the rates measured here by shape, other ops by their bytes");
    if (o->precision == TL_PRECISION_FP8_MIXED && !o->devices.here && p->peak_flop_per_s > 0 && o->peak <= 0)
        tl_plan_note(
            p->assumptions, &p->n_assumptions,
            "linear layers of blocks at the device's fp8 peak, attention and head at bf16's; this library's own run "
            "emulates fp8");
    if (o->precision == TL_PRECISION_FP8_MIXED && o->devices.here && p->peak_flop_per_s > 0)
        tl_plan_note(p->assumptions, &p->n_assumptions, "products of emulated fp8 at this machine's bf16 rates");
    if (o->devices.count > 1 && o->mfu <= 0)
        tl_plan_note(p->assumptions, &p->n_assumptions, "all-reduce by ring over one link per device, not overlapped");
}

static void whole_run(const tl_plan_options *o, tl_plan *p) {
    double step_tokens = (double)p->global_batch;
    if (o->model.family != TL_FAMILY_CRUNCHER)
        step_tokens *= (double)p->seq;
    p->tokens_per_second = step_tokens / p->step_seconds;
    double model = tl_u128_double(o->causal ? p->per_step_causal : p->per_step);
    p->mfu = model / (p->step_seconds * p->peak_flop_per_s * (double)p->devices);
    /* Hardware FLOPs are all that was executed, whatever the convention of the model's. */
    p->hfu = tl_u128_double(p->hardware_per_step) / (p->step_seconds * p->peak_flop_per_s * (double)p->devices);
    if (p->hfu > 1)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "an HFU of %.2f cannot be: eager attention computes all T×T pairs, so this MFU is out of reach",
                     p->hfu);
    if (o->tokens == 0)
        return;
    p->steps = tl_u128_double(o->tokens) / step_tokens;
    p->total_seconds = p->steps * p->step_seconds;
    p->device_hours = p->total_seconds / 3600.0 * (double)p->devices;
    p->amount = p->device_hours * o->price;
}

void tl_plan_time(const tl_plan_options *o, tl_plan_run *run, tl_plan *p) {
    clock c = {.compute = 0};
    p->peak_flop_per_s =
        o->peak > 0 ? o->peak
                    : tl_plan_peak_rate(&o->devices, o->machine, o->precision, p->peak_source, sizeof p->peak_source);
    if (o->peak > 0)
        tl_plan_peak_by_hand(&o->devices, o->precision, o->peak, p->peak_source, sizeof p->peak_source);
    c.rates.machine = o->devices.here ? o->machine : NULL;
    c.rates.peak = p->peak_flop_per_s;
    c.rates.bandwidth = tl_plan_bandwidth(&o->devices, o->machine);
    if (o->precision == TL_PRECISION_FP8_MIXED && o->devices.accelerator && o->peak <= 0) {
        c.rates.fp8_net = tl_trainer_net(run->trainer);
        c.rates.peak_beside = o->devices.accelerator->rate[TL_RATE_BF16];
    }
    c.rates.link = o->devices.accelerator ? o->devices.accelerator->link_bandwidth : 0;
    p->measured_rates = o->devices.here && o->machine && o->machine->n_shapes > 0;
    if (c.rates.peak > 0) {
        tl_ledger_each_op(run->ctx, add_op, &c);
        p->compute_seconds = c.compute;
        p->memory_seconds = c.memory;
        p->communication_seconds = c.communication;
        p->roofline_seconds = p->step_seconds = c.compute + c.memory + c.communication;
        double model = tl_u128_double(o->causal ? p->per_step_causal : p->per_step);
        if (o->mfu > 0)
            p->step_seconds = model / (c.rates.peak * (double)p->devices * o->mfu);
        if (c.compute >= c.memory && c.compute >= c.communication)
            p->bound = TL_BOUND_COMPUTE;
        else
            p->bound = c.memory >= c.communication ? TL_BOUND_MEMORY : TL_BOUND_COMMUNICATION;
        if (p->step_seconds > 0)
            whole_run(o, p);
    }
    note_time(o, p);
}

const char *tl_bound_name(tl_bound bound) {
    static const char *const names[] = {"unknown", "compute", "memory", "communication"};
    return (unsigned)bound < 4 ? names[bound] : "?";
}
