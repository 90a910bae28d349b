/* The ledger: counters that are always right, and a log of the running step that can be replayed to any moment. */
#include "account/ledger.h"

#include <string.h>

const char *tl_op_name_of(const struct tl_op *op) {
    const char *name = NULL;
    if (op)
        memcpy(&name, op, sizeof name);
    return name;
}

/* As tl_host_grow, for logs of which every entry is written before it is read: the room is not cleared. */
static bool grow_log(tl_ctx *ctx, void *array, size_t size, int64_t wanted, int64_t *capacity) {
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = ctx->allocator.alloc(ctx->allocator.self, (size_t)wanted * size, 16, TL_ALLOC_HOST);
    if (!grown) {
        tl_ctx_fail(ctx, TL_ERR_MEMORY, "no memory for %lld entries of the log", (long long)wanted);
        return false;
    }
    if (old)
        memcpy(grown, old, (size_t)*capacity * size);
    tl_host_free(ctx, old, (size_t)*capacity * size);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

static int64_t doubled(int64_t capacity) { return capacity ? capacity * 2 : 1024; }

static void log_event(tl_ctx *ctx, tl_event_kind kind, const tl_storage *s) {
    struct tl_ledger *l = ctx->ledger;
    if (l->event_count == l->event_capacity &&
        !grow_log(ctx, &l->events, sizeof *l->events, doubled(l->event_capacity), &l->event_capacity))
        return;
    l->events[l->event_count++] = (tl_event){
        .kind = (uint8_t)kind,
        .category = (uint8_t)s->category,
        .phase = (uint8_t)ctx->place.phase,
        .slot = s->slot,
        .module = s->module,
        .region = s->region,
        .bytes = s->bytes,
        .formula = s->formula,
        .op = s->op,
        .site = s->site,
        .user_site = s->user_site,
    };
}

static inline void settle(struct tl_ledger *l, tl_moment *moment) {
    if (!moment->pending)
        return;
    memcpy(moment->by_category, l->live, sizeof l->live);
    moment->pending = false;
}

static void settle_all(struct tl_ledger *l) {
    settle(l, &l->peak);
    for (int i = 0; i < TL_PHASE_COUNT; i++)
        settle(l, &l->phase[i]);
}

static void raise_moment(tl_ctx *ctx, tl_moment *moment) {
    struct tl_ledger *l = ctx->ledger;
    if (moment->seen && l->total <= moment->bytes)
        return;
    moment->seen = true;
    moment->bytes = l->total;
    moment->event = l->event_count;
    moment->place = ctx->place;
    moment->pending = true;
}

static void on_allocated(tl_ctx *ctx, tl_storage *s) {
    struct tl_ledger *l = ctx->ledger;
    if (s->bytes > 0)
        settle_all(l); /* what this raises is looked at anew; the peak of a phase that is over must not see it */
    s->slot = l->slot_count++;
    if (!tl_add_i64(l->total, s->bytes, &l->total)) {
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "the sum of live bytes is beyond 63 bits");
        return;
    }
    l->live[s->category] += s->bytes;
    if (l->live[s->category] > l->high[s->category])
        l->high[s->category] = l->live[s->category];
    if (s->bytes > 0 && !tl_add_i64(l->allocations, ctx->place.times ? ctx->place.times : 1, &l->allocations)) {
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "the number of allocations of a step is beyond 63 bits");
        return;
    }
    log_event(ctx, TL_EVENT_ALLOC, s);
    raise_moment(ctx, &l->peak);
    raise_moment(ctx, &l->phase[ctx->place.phase]);
}

static void on_freed(tl_ctx *ctx, tl_storage *s) {
    struct tl_ledger *l = ctx->ledger;
    settle_all(l);
    l->total -= s->bytes;
    l->live[s->category] -= s->bytes;
    log_event(ctx, TL_EVENT_FREE, s);
}

static void on_retagged(tl_ctx *ctx, tl_storage *s, tl_category before) {
    struct tl_ledger *l = ctx->ledger;
    l->live[before] -= s->bytes;
    l->live[s->category] += s->bytes;
    if (l->live[s->category] > l->high[s->category])
        l->high[s->category] = l->live[s->category];
    log_event(ctx, TL_EVENT_RETAG, s);
}

static void on_phase_changed(tl_ctx *ctx, tl_phase before) {
    (void)before;
    /* Back in init after loading: what was loaded is none of init's, unless more is made then. */
    if (ctx->place.phase != TL_PHASE_INIT)
        raise_moment(ctx, &ctx->ledger->phase[ctx->place.phase]);
}

static const tl_storage_hooks ledger_hooks = {on_allocated, on_freed, on_retagged, on_phase_changed};

bool tl_ledger_attach(tl_ctx *ctx) {
    ctx->ledger = tl_host_alloc(ctx, sizeof *ctx->ledger);
    if (!ctx->ledger)
        return false;
    ctx->hooks = &ledger_hooks;
    return true;
}

bool tl_ledger_reserve(tl_ctx *ctx, int64_t events, int64_t ops) {
    struct tl_ledger *l = ctx->ledger;
    return (events <= l->event_capacity || grow_log(ctx, &l->events, sizeof *l->events, events, &l->event_capacity)) &&
           (ops <= l->op_capacity || grow_log(ctx, &l->ops, sizeof *l->ops, ops, &l->op_capacity));
}

void tl_ledger_detach(tl_ctx *ctx) {
    struct tl_ledger *l = ctx->ledger;
    ctx->hooks = NULL;
    ctx->ledger = NULL;
    if (!l)
        return;
    tl_host_free(ctx, l->events, (size_t)l->event_capacity * sizeof *l->events);
    tl_host_free(ctx, l->ops, (size_t)l->op_capacity * sizeof *l->ops);
    tl_host_free(ctx, l, sizeof *l);
}

void tl_ledger_step_begin(tl_ctx *ctx) {
    struct tl_ledger *l = ctx->ledger;
    settle_all(l);
    l->event_count = 0;
    l->op_count = 0;
    l->slot_count = 0;
    l->allocations = 0;
    memset(l->counts, 0, sizeof l->counts);
    memset(l->recomputed, 0, sizeof l->recomputed);
    memcpy(l->high, l->live, sizeof l->live);
    tl_storage *oldest = ctx->storages;
    while (oldest && oldest->next)
        oldest = oldest->next;
    for (tl_storage *s = oldest; s; s = s->previous) { /* in the order of their allocation */
        s->slot = l->slot_count++;
        log_event(ctx, TL_EVENT_CARRIED, s);
    }
    memset(&l->peak, 0, sizeof l->peak);
    for (int i = 0; i < TL_PHASE_COUNT; i++) {
        bool kept = i == TL_PHASE_INIT || i == TL_PHASE_LOAD || i == TL_PHASE_SAVE;
        if (kept)
            l->phase[i].event = -1; /* the number stays, its moment left the log */
        else
            memset(&l->phase[i], 0, sizeof l->phase[i]);
    }
    raise_moment(ctx, &l->peak);
    raise_moment(ctx, &l->phase[ctx->place.phase]);
}

static inline void add_checked(tl_ctx *ctx, tl_u128 *sum, tl_u128 more) {
    *sum += more;
    if (*sum < more)
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a sum of counts is beyond 128 bits");
}

/* In a condensed repetition the numbers are those of all iterations, the formulas those of one: folding multiplies. */
static void multiply(tl_ctx *ctx, tl_op_record *r) {
    tl_amount *const amounts[] = {&r->matmul,
                                  &r->matmul_causal,
                                  &r->arithmetic,
                                  &r->special,
                                  &r->read,
                                  &r->written,
                                  &r->sent,
                                  &r->output,
                                  &r->executed,
                                  &r->matmul_again,
                                  &r->matmul_causal_again};
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        if (!tl_mul_u128(amounts[i]->count, (tl_u128)ctx->place.times, &amounts[i]->count))
            tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a sum of counts is beyond 128 bits");
}

tl_op_record *tl_ledger_op_begin(tl_ctx *ctx) {
    struct tl_ledger *l = ctx->ledger;
    if (l->op_count == l->op_capacity &&
        !grow_log(ctx, &l->ops, sizeof *l->ops, doubled(l->op_capacity), &l->op_capacity))
        return NULL;
    return &l->ops[l->op_count];
}

static void count(tl_ctx *ctx, tl_counts *c, const tl_op_record *r) {
    add_checked(ctx, &c->matmul, r->matmul.count);
    add_checked(ctx, &c->matmul_causal, r->matmul_causal.count);
    add_checked(ctx, &c->arithmetic, r->arithmetic.count);
    add_checked(ctx, &c->special, r->special.count);
    add_checked(ctx, &c->executed, r->executed.count);
    add_checked(ctx, &c->read, r->read.count);
    add_checked(ctx, &c->written, r->written.count);
    add_checked(ctx, &c->sent, r->sent.count);
    c->ops++;
}

void tl_ledger_op_end(tl_ctx *ctx) {
    struct tl_ledger *l = ctx->ledger;
    tl_op_record *r = &l->ops[l->op_count++];
    if (ctx->place.times > 1)
        multiply(ctx, r);
    count(ctx, &l->counts[r->place.phase], r);
    count(ctx, &l->counts[TL_PHASE_ALL], r);
    tl_counts *const again[] = {&l->recomputed[r->place.phase], &l->recomputed[TL_PHASE_ALL]};
    for (int i = 0; i < 2; i++)
        if (r->place.again)
            count(ctx, again[i], r);
        else {
            add_checked(ctx, &again[i]->matmul, r->matmul_again.count);
            add_checked(ctx, &again[i]->matmul_causal, r->matmul_causal_again.count);
        }
}

/* ---- questions ---- */

int64_t tl_ledger_live(const tl_ctx *ctx, tl_category category) { return ctx->ledger->live[category]; }

int64_t tl_ledger_live_total(const tl_ctx *ctx) { return ctx->ledger->total; }

int64_t tl_ledger_high(const tl_ctx *ctx, tl_category category) { return ctx->ledger->high[category]; }

int64_t tl_ledger_allocations(const tl_ctx *ctx) { return ctx->ledger->allocations; }

void tl_ledger_counts(const tl_ctx *ctx, tl_phase phase, tl_counts *counts) {
    *counts = ctx->ledger->counts[(unsigned)phase <= TL_PHASE_COUNT ? phase : TL_PHASE_ALL];
}

void tl_ledger_recomputed(const tl_ctx *ctx, tl_phase phase, tl_counts *counts) {
    *counts = ctx->ledger->recomputed[(unsigned)phase <= TL_PHASE_COUNT ? phase : TL_PHASE_ALL];
}

static void describe(const tl_ctx *ctx, const tl_moment *moment, tl_peak *peak) {
    memset(peak, 0, sizeof *peak);
    peak->bytes = moment->bytes;
    memcpy(peak->by_category, moment->pending ? ctx->ledger->live : moment->by_category, sizeof peak->by_category);
    peak->phase = moment->place.phase;
    peak->region = moment->place.region;
    peak->module = tl_module_path(ctx, moment->place.module);
    peak->op = tl_op_name_of(moment->place.op);
    peak->site = moment->place.site;
    peak->user_site = moment->place.user_site;
}

void tl_ledger_peak(const tl_ctx *ctx, tl_peak *peak) { describe(ctx, &ctx->ledger->peak, peak); }

void tl_ledger_phase_peak(const tl_ctx *ctx, tl_phase phase, tl_peak *peak) {
    if ((unsigned)phase >= TL_PHASE_COUNT)
        tl_ledger_peak(ctx, peak);
    else
        describe(ctx, &ctx->ledger->phase[phase], peak);
}

void tl_ledger_each_op(const tl_ctx *ctx, tl_op_visitor *visit, void *user) {
    const struct tl_ledger *l = ctx->ledger;
    for (int64_t i = 0; i < l->op_count; i++) {
        const tl_op_record *r = &l->ops[i];
        tl_op_entry entry = {
            .phase = r->place.phase,
            .module = tl_module_path(ctx, r->place.module),
            .pattern = tl_module_pattern(ctx, r->place.module),
            .op = tl_op_name_of(r->place.op),
            .site = r->place.site,
            .user_site = r->place.user_site,
            .region = r->place.region,
            .matmul = r->matmul,
            .matmul_causal = r->matmul_causal,
            .arithmetic = r->arithmetic,
            .special = r->special,
            .read = r->read,
            .written = r->written,
            .sent = r->sent,
            .output = r->output,
            .executed = r->executed,
            .matmul_again = r->matmul_again,
            .matmul_causal_again = r->matmul_causal_again,
            .workspace_bytes = r->workspace_bytes,
            .m = r->m,
            .n = r->n,
            .k = r->k,
            .batch = r->batch,
            .dtype = r->dtype,
            .recomputed = r->place.again,
        };
        if (!visit(user, &entry))
            return;
    }
}

void tl_ledger_each_event(const tl_ctx *ctx, tl_event_visitor *visit, void *user) {
    const struct tl_ledger *l = ctx->ledger;
    for (int64_t i = 0; i < l->event_count; i++) {
        const tl_event *e = &l->events[i];
        if (e->kind == TL_EVENT_RETAG || (e->bytes == 0))
            continue;
        visit(user, e->slot, e->kind == TL_EVENT_FREE ? 0 : e->bytes, e->kind == TL_EVENT_CARRIED,
              (tl_category)e->category);
    }
}

void tl_ledger_each_entry(const tl_ctx *ctx, tl_log_visitor *visit, void *user) {
    const struct tl_ledger *l = ctx->ledger;
    for (int64_t i = 0; i < l->event_count; i++) {
        const tl_event *e = &l->events[i];
        if (e->kind == TL_EVENT_RETAG || e->bytes == 0)
            continue;
        tl_log_entry entry = {
            .bytes = e->kind == TL_EVENT_FREE ? -e->bytes : e->bytes,
            .carried = e->kind == TL_EVENT_CARRIED,
            .phase = (tl_phase)e->phase,
            .category = (tl_category)e->category,
            .module = tl_module_path(ctx, e->module),
            .op = tl_op_name_of(e->op),
            .site = e->site,
            .user_site = e->user_site,
        };
        visit(user, &entry);
    }
}

bool tl_ledger_each_live(const tl_ctx *ctx, tl_phase phase, tl_live_visitor *visit, void *user) {
    struct tl_ledger *l = ctx->ledger;
    const tl_moment *moment = (unsigned)phase < TL_PHASE_COUNT ? &l->phase[phase] : &l->peak;
    if (!moment->seen || moment->event < 0)
        return false;
    int64_t end = moment->event;
    while (end < l->event_count && l->events[end].kind == TL_EVENT_RETAG)
        end++;
    /* The last entry of every slot up to the moment says whether it lives and as what. */
    tl_ctx *host = (tl_ctx *)(uintptr_t)ctx; /* scratch memory only; the account is not touched */
    size_t bytes = (size_t)l->slot_count * sizeof(int64_t);
    int64_t *last = tl_host_alloc(host, bytes);
    if (!last)
        return false;
    for (int64_t i = 0; i < end; i++)
        last[l->events[i].slot] = i + 1;
    for (uint32_t slot = 0; slot < l->slot_count; slot++) {
        if (!last[slot])
            continue;
        const tl_event *e = &l->events[last[slot] - 1];
        if (e->kind == TL_EVENT_FREE || e->bytes == 0)
            continue;
        tl_live_entry entry = {
            .category = (tl_category)e->category,
            .bytes = e->bytes,
            .formula = e->formula,
            .region = e->region,
            .module = tl_module_path(ctx, e->module),
            .pattern = tl_module_pattern(ctx, e->module),
            .op = tl_op_name_of(e->op),
            .site = e->site,
            .user_site = e->user_site,
        };
        if (!visit(user, &entry))
            break;
    }
    tl_host_free(host, last, bytes);
    return true;
}
