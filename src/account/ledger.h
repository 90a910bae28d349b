/* account/ledger.h: the ledger's own structs, for the account layer and the op dispatcher. */
#ifndef TALLY_ACCOUNT_LEDGER_H
#define TALLY_ACCOUNT_LEDGER_H

#include "tally/account.h"
#include "tensor/ctx.h"

typedef enum tl_event_kind { TL_EVENT_CARRIED, TL_EVENT_ALLOC, TL_EVENT_FREE, TL_EVENT_RETAG } tl_event_kind;

typedef struct tl_event {
    uint8_t kind, category, phase, unused;
    uint32_t slot, module, region;
    int64_t bytes;
    const tl_poly *formula;
    const struct tl_op *op;
    const char *site, *user_site;
} tl_event;

typedef struct tl_op_record {
    tl_place place;
    tl_amount matmul, matmul_causal, arithmetic, special, read, written, sent, output;
    tl_amount executed, matmul_again, matmul_causal_again;
    int64_t workspace_bytes;
    int64_t m, n, k, batch;
    tl_dtype dtype;
} tl_op_record;

/* A moment: its peak and where in the log it lies. pending: retags may still belong to it. */
typedef struct tl_moment {
    int64_t bytes, event; /* event: number of log entries up to and including it; −1: not in this log */
    int64_t by_category[TL_CATEGORY_COUNT];
    tl_place place;
    bool pending, seen;
} tl_moment;

struct tl_ledger {
    int64_t live[TL_CATEGORY_COUNT], high[TL_CATEGORY_COUNT], total;
    tl_moment peak, phase[TL_PHASE_COUNT];
    tl_event *events;
    int64_t event_count, event_capacity;
    tl_op_record *ops;
    int64_t op_count, op_capacity;
    uint32_t slot_count;
    int64_t allocations;
    tl_counts counts[TL_PHASE_COUNT + 1], recomputed[TL_PHASE_COUNT + 1];
};

bool tl_ledger_attach(tl_ctx *ctx);
void tl_ledger_detach(tl_ctx *ctx);
/* Room in the log for that many entries and ops, for who knows about how many there will be: growing copies. */
bool tl_ledger_reserve(tl_ctx *ctx, int64_t events, int64_t ops);
/* Books one op: a place in the log, undefined, to fill in; then end counts it. NULL and the context's error without memory. */
tl_op_record *tl_ledger_op_begin(tl_ctx *ctx);
void tl_ledger_op_end(tl_ctx *ctx);
const char *tl_op_name_of(const struct tl_op *op); /* name is an op's first member */

#endif
