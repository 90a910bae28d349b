/* cli/train_ledger.c: ledger.json, what was planned beside what was measured. */
#include <stdlib.h>
#include <string.h>

#include "train.h"

static tl_row_sum *row_of(tl_account *a, tl_table table, const char *name) {
    name = name ? name : "";
    for (int i = 0; i < a->count[table]; i++)
        if (strcmp(a->rows[table][i].name, name) == 0)
            return &a->rows[table][i];
    if (a->count[table] == a->capacity[table]) {
        int capacity = a->capacity[table] ? 2 * a->capacity[table] : 64;
        tl_row_sum *more = realloc(a->rows[table], (size_t)capacity * sizeof *more);
        if (!more) {
            a->failed = true;
            return NULL;
        }
        a->rows[table] = more;
        a->capacity[table] = capacity;
    }
    tl_row_sum *row = &a->rows[table][a->count[table]++];
    *row = (tl_row_sum){.name = name};
    return row;
}

typedef struct reading {
    tl_account *account;
    int which;
} reading;

static bool add_op(void *user, const tl_op_entry *e) {
    reading *r = user;
    const char *names[TL_TABLES] = {e->pattern, e->op, e->site, tl_phase_name(e->phase)};
    for (int table = 0; table < TL_TABLES; table++) {
        tl_row_sum *row = row_of(r->account, (tl_table)table, names[table]);
        if (row)
            row->flops[r->which] += e->executed.count;
    }
    return !r->account->failed;
}

static bool add_live(void *user, const tl_live_entry *e) {
    reading *r = user;
    const char *names[TL_BY_PHASE] = {e->pattern, e->op, e->site};
    for (int table = 0; table < TL_BY_PHASE; table++) {
        tl_row_sum *row = row_of(r->account, (tl_table)table, names[table]);
        if (row)
            row->bytes[r->which] += e->bytes;
    }
    return !r->account->failed;
}

void tl_account_read(tl_account *a, int which, tl_ctx *ctx) {
    reading r = {a, which};
    for (int table = 0; table < TL_TABLES; table++)
        for (int i = 0; i < a->count[table]; i++) {
            a->rows[table][i].flops[which] = 0;
            a->rows[table][i].bytes[which] = 0;
        }
    tl_ledger_peak(ctx, &a->peak[which]);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &a->counts[which]);
    a->allocations[which] = tl_ledger_allocations(ctx);
    tl_ledger_each_op(ctx, add_op, &r);
    if (!tl_ledger_each_live(ctx, TL_PHASE_ALL, add_live, &r))
        a->failed = true;
    for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_STEP; phase++) {
        tl_peak peak;
        tl_ledger_phase_peak(ctx, (tl_phase)phase, &peak);
        tl_row_sum *row = row_of(a, TL_BY_PHASE, tl_phase_name((tl_phase)phase));
        if (row)
            row->bytes[which] = peak.bytes;
    }
}

void tl_account_free(tl_account *a) {
    for (int table = 0; table < TL_TABLES; table++)
        free(a->rows[table]);
    memset(a, 0, sizeof *a);
}

static void put_pair(tl_json *json, const char *key, int64_t planned, int64_t measured) {
    tl_json_key(json, key);
    tl_json_object(json);
    tl_json_put_integer(json, "planned", planned);
    tl_json_put_integer(json, "measured", measured);
    tl_json_end(json);
}

static int by_size(const void *a, const void *b) {
    const tl_row_sum *x = a, *y = b;
    if (x->flops[0] != y->flops[0])
        return x->flops[0] < y->flops[0] ? 1 : -1;
    if (x->bytes[0] != y->bytes[0])
        return x->bytes[0] < y->bytes[0] ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* The tables are the two ledgers': the plan's, and the one the run itself kept. */
static void put_tables(tl_json *json, const tl_account *a) {
    static const char *const keys[TL_TABLES] = {"by_module", "by_op", "by_line", "by_phase"};
    for (int table = 0; table < TL_TABLES; table++) {
        if (table != TL_BY_PHASE)
            qsort(a->rows[table], (size_t)a->count[table], sizeof *a->rows[table], by_size);
        tl_json_key(json, keys[table]);
        tl_json_array(json);
        for (int i = 0; i < a->count[table]; i++) {
            const tl_row_sum *r = &a->rows[table][i];
            tl_json_object(json);
            tl_json_put_string(json, "name", r->name);
            tl_json_put_unsigned(json, "planned_flops", r->flops[0]);
            tl_json_put_unsigned(json, "run_flops", r->flops[1]);
            tl_json_put_integer(json, "planned_bytes", r->bytes[0]);
            tl_json_put_integer(json, "run_bytes", r->bytes[1]);
            tl_json_end(json);
        }
        tl_json_end(json);
    }
}

static void put_peak(tl_json *json, const tl_plan *plan, const tl_measured *m) {
    const int64_t *planned = plan->peak.by_category;
    put_pair(json, "peak_bytes", plan->peak.bytes, m->peak_bytes);
    tl_json_put_string(json, "peak_phase", tl_phase_name(plan->peak.phase));
    tl_json_put_string(json, "peak_module", plan->peak.module);
    tl_json_put_string(json, "peak_op", plan->peak.op);
    tl_json_put_string(json, "peak_line", plan->peak.site);
    tl_json_key(json, "by_category");
    tl_json_object(json);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (c == TL_WORK)
            put_pair(json, "saved+work", planned[TL_SAVED] + planned[TL_WORK], m->by_category[TL_WORK]);
        else if (c != TL_SAVED && (planned[c] || m->by_category[c]))
            put_pair(json, tl_category_name((tl_category)c), planned[c], m->by_category[c]);
    tl_json_end(json);
    tl_json_put_integer(json, "planned_saved_bytes", planned[TL_SAVED]);
    tl_json_put_integer(json, "planned_work_bytes", planned[TL_WORK]);
}

/* Beside the steps; one that this run did not have is planned alone, and is left out. */
static void put_moments(tl_json *json, const tl_plan *plan, const tl_measured *m) {
    tl_json_key(json, "moments");
    tl_json_object(json);
    put_pair(json, "init", plan->init.bytes, m->init_bytes);
    if (m->load_bytes)
        put_pair(json, "load", plan->load.bytes, m->load_bytes);
    else if (m->weights_bytes)
        put_pair(json, "load", plan->weights.bytes, m->weights_bytes);
    if (m->save_bytes)
        put_pair(json, "save", plan->save.bytes, m->save_bytes);
    tl_json_end(json);
}

tl_status tl_train_write_ledger(const tl_train *t, const tl_plan *plan, const tl_account *a, const tl_measured *m,
                                tl_error *error) {
    tl_json *json = tl_json_new(NULL, 1);
    if (!json || a->failed) {
        tl_json_free(json);
        return tl_fail(error, TL_ERR_MEMORY, "no memory for the account of the run");
    }
    tl_json_object(json);
    tl_json_put_string(json, "schema", "tally/1");
    tl_json_put_string(json, "verb", "ledger");
    tl_json_put_string(json, "model", t->model.name);
    tl_json_put_integer(json, "parameters", plan->parameters.unique);
    tl_json_put_integer(json, "steps_measured", m->steps);
    tl_json_put_integer(json, "steps_that_differ", m->steps_that_differ);
    put_peak(json, plan, m);
    put_moments(json, plan, m);
    tl_json_key(json, "flops_per_step");
    tl_json_object(json);
    tl_json_put_unsigned(json, "planned", plan->hardware_per_step);
    tl_json_put_unsigned(json, "measured", m->flops);
    tl_json_end(json);
    put_pair(json, "allocations", plan->allocations, m->allocations);
    tl_json_key(json, "step_seconds");
    tl_json_object(json);
    tl_json_key(json, "planned");
    if (plan->step_seconds > 0)
        tl_json_real(json, plan->step_seconds);
    else
        tl_json_null(json);
    tl_json_put_real(json, "measured", m->step_seconds);
    tl_json_end(json);
    tl_json_put_integer(json, "unplanned_bytes", m->unplanned_bytes);
    /* What the second instrument saw and the run's own ledger did not book. */
    tl_json_put_integer(json, "unaccounted_bytes", m->peak_bytes - a->peak[1].bytes);
    tl_json_put_integer(json, "unaccounted_flops", (int64_t)(m->flops - a->counts[1].executed));
    put_tables(json, a);
    tl_json_end(json);
    tl_status status = tl_train_write(t, "ledger.json", json, error);
    tl_json_free(json);
    return status;
}
