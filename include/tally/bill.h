/* tally/bill.h: the bill of one line of code. The op runs on meta in a training of two steps (forward, backward,
 * optimizer), and the second step's ledger is read: no count here comes from a formula of its own.
 */
#ifndef TALLY_BILL_H
#define TALLY_BILL_H

#include "tally/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_bill_options {
    const char *op;            /* "linear 1024 1024 bias"; tl_bill_grammar lists what there is */
    const tl_devices *devices; /* NULL: intensity without bound and time */
    const tl_machine *machine; /* for `here` */
    int64_t tokens;            /* rows the op works on; 0: its own default */
    tl_precision precision;
    tl_optimizer_options optimizer;
    double peak; /* FLOP/s by hand; 0: the device's */
} tl_bill_options;

/* One pass: forward, backward or the optimizer's step; of the op's own lines, not of its inputs or the loss after it. */
typedef struct tl_bill_pass {
    tl_u128 matmul, matmul_causal, arithmetic, special, read, written; /* FLOPs, calls, bytes */
    int64_t ops;
    double intensity; /* FLOPs a byte moved: matmul where there is one, else arithmetic and special */
    double seconds;   /* at peak: the sum over ops of the larger of FLOPs ÷ peak and bytes ÷ bandwidth; 0: unknown */
    tl_bound bound;   /* unknown without a device */
} tl_bill_pass;

typedef struct tl_bill {
    char title[128]; /* "linear 1024 1024" as understood */
    char unit[16];   /* what a row is: "token", "row"; "" for an op with sizes of its own */
    int64_t tokens;  /* rows */
    bool tokens_by_default;
    int64_t parameters, biases; /* biases are among the parameters */
    int64_t param_bytes, grad_bytes, master_bytes, optim_bytes;
    int64_t built_bytes, backward_bytes, step_bytes; /* state that lives after each: 16, 32, 64 MiB for 2048² in fp32 */
    int64_t input_bytes, output_bytes, saved_bytes;  /* saved: kept for backward, the input included */
    tl_dtype dtype;                                  /* of parameters and activations */
    tl_bill_pass forward, backward, step;
    double peak_flop_per_s, bandwidth, ridge; /* ridge: FLOPs a byte where both take as long; 0 unknown */
    char peak_source[160];
} tl_bill;

/* Fills *bill. What is not understood is TL_ERR_ARGUMENT with the grammar. */
tl_status tl_bill_make(const tl_bill_options *options, tl_bill *bill, tl_error *error) TL_MUST_CHECK;

/* The grammar: line i ("linear I O [bias]") and what it is; NULL beyond the last. */
const char *tl_bill_grammar(int index, const char **about);

#ifdef __cplusplus
}
#endif
#endif
