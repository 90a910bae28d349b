/* op/elementwise.h: what unary and binary ops share. */
#ifndef TALLY_OP_ELEMENTWISE_H
#define TALLY_OP_ELEMENTWISE_H

#include "op/core.h"

tl_status tl_unary_infer(tl_sig *sig); /* same shape and dtype; floats */
void tl_unary_cost(const tl_sig *sig, tl_cost *cost, int64_t arithmetic, int64_t special);
void tl_unary_saves_input(const tl_sig *sig, tl_saves *saves);
void tl_unary_saves_output(const tl_sig *sig, tl_saves *saves);
void tl_unary_sample(uint64_t seed, tl_case *c);
void tl_unary_sample_positive(uint64_t seed, tl_case *c);
/* Fused backward of a unary op: in[0] what was saved, in[1] the output's gradient. */
tl_status tl_unary_backward_infer(tl_sig *sig);
void tl_unary_backward_sample(uint64_t seed, tl_case *c);
/* gin[0] = backward(saved input or output, gout[0]). */
tl_status tl_unary_grad(tl_ctx *ctx, const tl_saved *saved, const tl_op *backward, tl_tensor *const gout[],
                        tl_tensor *gin[]);

tl_status tl_binary_infer(tl_sig *sig);                                       /* broadcast; same dtype */
void tl_binary_cost(const tl_sig *sig, tl_cost *cost);                        /* one FLOP an element */
tl_status tl_binary_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel); /* broadcasts the arrays first */
void tl_binary_sample(uint64_t seed, tl_case *c);

/* ---- of integers too, of bool, and to bool ---- */
tl_status tl_unary_infer_arithmetic(tl_sig *sig); /* same shape and dtype; all but bool */
tl_status tl_binary_infer_any(tl_sig *sig);       /* broadcast; same dtype, any */
tl_status tl_bool_infer(tl_sig *sig);             /* a bool for each element of input 0 */
tl_status tl_compare_infer(tl_sig *sig);          /* broadcast; same dtype, any; a bool for each */
tl_status tl_logic_infer(tl_sig *sig);            /* broadcast; bool and bool */
tl_status tl_sig_want_bool(tl_sig *sig, int input);
void tl_compare_sample(uint64_t seed, tl_case *c);
void tl_logic_sample(uint64_t seed, tl_case *c);
/* Backward of a binary op: in: a, b, and the gradient of their broadcast shape, which is the output's. Run by tl_binary_run. */
tl_status tl_binary_backward_infer(tl_sig *sig);
void tl_binary_backward_sample(uint64_t seed, tl_case *c);

#endif
