/* tally/account.h: the ledger. What a run holds, computes and moves, by category, module, op, source line and phase.
 *
 * The ledger is always on. It keeps counters (current and high water) and a log of the running step: every allocation,
 * free and retag, and every op with its declared cost. A step's log starts with tl_ledger_step_begin(); what lives then
 * is carried over. Peaks and formulas come from replaying the log to a moment.
 *
 * Words: peak: the largest sum of live requested bytes, at its first strict maximum; retags before the next free belong
 * to that moment. Model FLOPs count matmul only, as the literature does; matmul_causal is the same with the masked half
 * of causal attention left out (T(T+1)/2 pairs). arithmetic: + − × ÷ √, one each. special: calls of exp, log, tanh, erf.
 */
#ifndef TALLY_ACCOUNT_H
#define TALLY_ACCOUNT_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A count and, in a run that keeps formulas, its polynomial. */
typedef struct tl_amount {
    tl_u128 count;
    const tl_poly *formula;
} tl_amount;

/* Sums; on overflow of 128 bits the context's error sticks. */
typedef struct tl_counts {
    tl_u128 matmul, matmul_causal, arithmetic, special;
    tl_u128 executed;            /* of matmul, without blocks of attention that are hidden and not computed */
    tl_u128 read, written, sent; /* bytes */
    int64_t ops;
} tl_counts;

#define TL_PHASE_ALL TL_PHASE_COUNT

typedef struct tl_peak {
    int64_t bytes;
    int64_t by_category[TL_CATEGORY_COUNT];
    tl_phase phase;
    uint32_t region;       /* the iteration at work then, for tl_fold_at */
    const char *module;    /* path of the module at work then, "" outside */
    const char *op;        /* the op that allocated last, or NULL */
    const char *site;      /* its line, or NULL */
    const char *user_site; /* outermost module call's line, or NULL */
} tl_peak;

void tl_ledger_step_begin(tl_ctx *ctx);

int64_t tl_ledger_live(const tl_ctx *ctx, tl_category category);
int64_t tl_ledger_live_total(const tl_ctx *ctx);
/* High water of one category, in the current log. */
int64_t tl_ledger_high(const tl_ctx *ctx, tl_category category);
/* The peak of the current log. */
void tl_ledger_peak(const tl_ctx *ctx, tl_peak *peak);
/* The peak while a phase ran: of the current log for forward, loss, backward and step, of the whole run for init, load
 * and save. bytes 0: the phase never ran. */
void tl_ledger_phase_peak(const tl_ctx *ctx, tl_phase phase, tl_peak *peak);
/* Counts of the current log; TL_PHASE_ALL for all phases. */
void tl_ledger_counts(const tl_ctx *ctx, tl_phase phase, tl_counts *counts);
/* Of those counts, what a checkpointed region (tally/grad.h) computed a second time, and the products that a fused backward
 * computes again (flash attention's scores; of these matmul and matmul_causal alone). matmul less these is model FLOPs;
 * `executed` of all counts is hardware FLOPs. */
void tl_ledger_recomputed(const tl_ctx *ctx, tl_phase phase, tl_counts *counts);
/* Allocations of storages with bytes in the current log (carried ones not counted). */
int64_t tl_ledger_allocations(const tl_ctx *ctx);

/* One op as logged. Strings live as long as the context (sites: forever). */
typedef struct tl_op_entry {
    tl_phase phase;
    const char *module, *pattern; /* "h.3.attn", "h.*.attn" */
    const char *op, *site, *user_site;
    uint32_t region;
    tl_amount matmul, matmul_causal, arithmetic, special, read, written, sent;
    tl_amount executed;                          /* of matmul; less only where hidden blocks are not computed */
    tl_amount matmul_again, matmul_causal_again; /* of those, what the op itself computes a second time, for backward */
    tl_amount output; /* bytes of its first output where that is new storage: statistics and masks left out */
    int64_t workspace_bytes;
    int64_t m, n, k, batch; /* of its largest product; 0 without one */
    tl_dtype dtype;         /* of its first output */
    bool recomputed;        /* executed a second time, for backward */
} tl_op_entry;
typedef bool tl_op_visitor(void *user, const tl_op_entry *entry); /* false stops */
void tl_ledger_each_op(const tl_ctx *ctx, tl_op_visitor *visit, void *user);

/* One live storage at a peak. */
typedef struct tl_live_entry {
    tl_category category;
    int64_t bytes;
    const tl_poly *formula;
    uint32_t region;
    const char *module, *pattern, *op, *site, *user_site;
} tl_live_entry;
typedef bool tl_live_visitor(void *user, const tl_live_entry *entry);
/* The live set at the peak of a phase of the current log (TL_PHASE_ALL: of the step). False if that moment is not in
 * the log. */
bool tl_ledger_each_live(const tl_ctx *ctx, tl_phase phase, tl_live_visitor *visit, void *user);

/* The log of allocations, for planning an arena: called in order; release has bytes 0. `slot` names the storage. */
typedef void tl_event_visitor(void *user, uint32_t slot, int64_t bytes, bool carried, tl_category category);
void tl_ledger_each_event(const tl_ctx *ctx, tl_event_visitor *visit, void *user);

/* The same log with all that is known of each entry, in order: memory over time. What is carried into the step comes first;
 * retags and storages without bytes are left out. */
typedef struct tl_log_entry {
    int64_t bytes; /* taken, or less than 0: given back */
    bool carried;
    tl_phase phase; /* at work then */
    tl_category category;
    const char *module, *op, *site, *user_site; /* of the storage: where and by what it was made */
} tl_log_entry;
typedef void tl_log_visitor(void *user, const tl_log_entry *entry);
void tl_ledger_each_entry(const tl_ctx *ctx, tl_log_visitor *visit, void *user);

/* ---- folding: sums over regions become formulas in N, A, … ----
 * Add (region, polynomial) pairs; equal iterations of a repetition fold into its symbol, unequal ones into classes:
 * (N−1) × […] + last […]. Needs a context with formulas. */
typedef struct tl_fold tl_fold;
typedef struct tl_fold_term {
    const tl_poly *times;   /* how often: N, N − 1, 1 */
    const tl_poly *content; /* one iteration's */
    char where[48];         /* "" or "last N", "first A"; of several alike "N = 1, 5, 9, 13, ..." */
} tl_fold_term;
tl_fold *tl_fold_new(tl_ctx *ctx);
void tl_fold_free(tl_fold *fold);
/* What is summed lives at a moment that stands in `region` (tl_peak): of contents equally frequent, that iteration's is the
 * odd one. Without a moment, for counts of work, the first iteration's is. */
void tl_fold_at(tl_fold *fold, uint32_t region);
void tl_fold_add(tl_fold *fold, uint32_t region, const tl_poly *p);
/* The whole as one polynomial; NULL and the context's error on overflow. */
const tl_poly *tl_fold_total(tl_fold *fold);
/* The same as terms, unexpanded; up to `capacity`, count returned. */
int tl_fold_terms(tl_fold *fold, tl_fold_term *terms, int capacity);

/* ---- the arena: one block for all allocations of a step ----
 * A step allocates the same sequence every time. From the log of a whole step (a plan's second step, on meta) every
 * allocation gets an offset; a run then takes them from one block. What does not follow the sequence comes from the heap
 * and is counted as unplanned. */
typedef struct tl_arena_plan {
    int64_t bytes;         /* of the block: aligned, with what fragmentation costs */
    int64_t carried_bytes; /* what lives when the step begins, aligned; not in the block */
    int64_t event_count;   /* allocations and releases, in order */
    int64_t *event;        /* bytes of an allocation, or −1 − k: the k-th allocation is released */
    int64_t count;
    int64_t *offset; /* of the k-th allocation */
} tl_arena_plan;
/* Offsets for every allocation of the context's current log: best fit in time order. Memory from the context's allocator;
 * free it before the context. */
tl_status tl_arena_plan_make(tl_ctx *ctx, tl_arena_plan *plan) TL_MUST_CHECK;
void tl_arena_plan_free(tl_ctx *ctx, tl_arena_plan *plan);

typedef struct tl_arena tl_arena;
/* An allocator to inject into a context; passes everything on to `base` (NULL: malloc) until a plan is set. */
tl_arena *tl_arena_new(const tl_allocator *base, tl_error *error);
void tl_arena_free(tl_arena *arena); /* after the context */
tl_allocator tl_arena_allocator(tl_arena *arena);
/* Takes the block (huge pages asked for) and copies the plan. Nothing may be live in an earlier block. */
tl_status tl_arena_use(tl_arena *arena, const tl_arena_plan *plan, tl_error *error) TL_MUST_CHECK;
/* The next allocation is the step's first. */
void tl_arena_step_begin(tl_arena *arena);
/* Bytes that came from the heap since the plan was set though a step was under way. */
int64_t tl_arena_unplanned(const tl_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
