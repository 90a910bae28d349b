/* plan/plan.h: what the plan's files share. */
#ifndef TALLY_PLAN_PLAN_H
#define TALLY_PLAN_PLAN_H

#include "tally/plan.h"

void tl_plan_note(char notes[TL_PLAN_NOTES][200], int *count, const char *format, ...) TL_PRINTF(3, 4);
/* Assumptions and omissions of a plan whose bytes are read. */
void tl_plan_notes(const tl_plan_options *options, const tl_plan_run *run, tl_plan *plan);
/* What bounds an op: seconds at these rates. machine: products at the rates measured by shape; else at peak. fp8_net: only
 * products of this net's float8 layers run at peak, all others at peak_beside. */
typedef struct tl_plan_rates {
    const tl_machine *machine;
    double peak, bandwidth, link;
    const tl_net *fp8_net;
    double peak_beside;
} tl_plan_rates;
typedef struct tl_plan_op_seconds {
    double compute, memory, sent;
} tl_plan_op_seconds;
void tl_plan_op_time(const tl_plan_rates *rates, const tl_op_entry *entry, tl_plan_op_seconds *seconds);
/* Of the devices' memory; 0: unknown. */
double tl_plan_bandwidth(const tl_devices *devices, const tl_machine *machine);
/* Time, bound, cost of the step that `run` logged. */
void tl_plan_time(const tl_plan_options *options, tl_plan_run *run, tl_plan *plan);
/* Init, load and save; after everything else was read off the run. */
tl_status tl_plan_moments(const tl_plan_options *options, tl_plan_run *run, tl_plan *plan, tl_error *error);
void tl_plan_copy_peak(const tl_peak *from, tl_plan_peak *to);
/* ---- many plans, one after another (search.c, advise.c) ---- */
/* Keeps what a plan's bookkeeping was in for the next plan's. One at a time; nothing of it is in any account. */
typedef struct tl_plan_pool tl_plan_pool;
tl_plan_pool *tl_plan_pool_new(tl_error *error);
void tl_plan_pool_free(tl_plan_pool *pool);
const tl_allocator *tl_plan_pool_allocator(tl_plan_pool *pool); /* NULL: NULL */
/* Room in a run's log for the largest that the pool has seen, and a log it has now seen. */
bool tl_plan_pool_reserve(const tl_plan_pool *pool, tl_ctx *ctx);
void tl_plan_pool_saw(tl_plan_pool *pool, const tl_ctx *ctx);
/* tl_plan_run_make with that many steps, the last of which is read, and bookkeeping from `pool` (NULL: malloc). The states of a
 * run are loaded before its first step, so that one step logs what a second would (tests/test_search.c). */
tl_status tl_plan_run_steps(const tl_plan_options *options, bool formulas, int steps, tl_plan_pool *pool,
                            tl_plan_run *run, tl_error *error);

/* The bytes, FLOPs and capacity of a plan, as tl_plan_make's to the byte, from one step; with `timed` its seconds. All else in
 * *plan is zero. */
tl_status tl_plan_account(const tl_plan_options *options, bool timed, tl_plan_pool *pool, tl_plan *plan,
                          tl_error *error);
/* tl_plan_find_largest in that memory. */
tl_status tl_plan_search(const tl_plan_options *options, tl_plan_axis axis, tl_plan_pool *pool,
                         tl_plan_largest *largest, tl_error *error);

/* Where a plan will come out, told from plans of the same model with fewer layers: which of many is planned is chosen by it.
 * Never an answer. */
typedef struct tl_plan_estimate {
    bool known;           /* false: the layers are too few or too unlike */
    int64_t least, needs; /* without what an arena holds beyond its peak, and with it; INT64_MAX: beyond 64 bits */
    int above;            /* per cent by which `least` may be too high */
    int64_t before_step;  /* live bytes at the highest of forward, loss and backward */
    bool in_part;         /* told by some of the layers: the whole holds `least` or more, and that is all it tells */
    tl_u128 hardware_per_step;
    int64_t layers; /* that were planned for it */
} tl_plan_estimate;
/* Once `least` is beyond `enough` no more is planned; INT64_MAX: all is told. What cannot be planned is known = false; an error is
 * that of memory. */
tl_status tl_plan_guess(const tl_plan_options *options, int64_t enough, tl_plan_pool *pool, tl_plan_estimate *estimate,
                        tl_error *error);

#endif
