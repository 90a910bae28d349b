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

#endif
