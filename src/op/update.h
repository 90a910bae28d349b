/* op/update.h: what optimizer updates share. Inputs: gradient, parameter, states …, [copy]; outputs: all but the gradient,
 * each in place on its input, which is the kernels' order. */
#ifndef TALLY_OP_UPDATE_H
#define TALLY_OP_UPDATE_H

#include "op/core.h"

tl_status tl_update_infer(tl_sig *sig, int states);
tl_status tl_update_infer_mixed(tl_sig *sig, int states); /* the same; the op has checked the states itself */
/* each FLOPs an element; the copy is written and not read. */
void tl_update_cost(const tl_sig *sig, tl_cost *cost, int states, int64_t each);
void tl_update_sample(uint64_t *seed, tl_case *c, int states); /* the last state is above 0 */
tl_status tl_update_no_options(const char *op, const tl_tensor *param, const char *site);
/* What adam, adamw and adamw8bit share: checks of betas, ε and step; a sample's numbers; options to attributes. */
tl_status tl_update_adam_infer(tl_sig *sig);
void tl_update_adam_sample(uint64_t *seed, tl_adamw_attr *attr);
void tl_update_adam_attr(const tl_adamw_options *options, tl_adamw_attr *attr);
/* Runs the update with the tensors that are there. */
tl_status tl_update_run(const tl_op *op, tl_tensor *grad, tl_tensor *param, tl_tensor *const states[], int n_states,
                        tl_tensor *copy, const void *attr, const char *site);

#endif
