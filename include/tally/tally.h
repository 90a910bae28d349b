/* tally/tally.h: all of the library, and a map of it. Each header below is whole by itself: include this one, or those you
 * need. In every one of them the rules of tally/base.h hold: nothing prints or exits, a function returns NULL or a status,
 * and the first error of a context stays until it is asked for (tl_ctx_error).
 *
 * Begin here
 *   base.h      status, error messages, the injected allocator, 128-bit counts
 *   tensor.h    contexts (a device: NULL kernels is meta), dims, shapes, tensors, scopes, who owns what; dtype.h
 *   cpu.h       this processor's kernels, for tl_ctx_options.kernels
 *   ops.h       the ops; more of them in ops_*.h (attention, layers, index, MoE, NF4, float8, …) and views.h; axes.h: by the
 *               names of axes (einsum, rearrange); init.h: how parameters start; op.h: what an op declares
 *   grad.h      recording, backward, recompute, autocast
 *   optim.h     optimizers, clipping, schedules
 *   account.h   the ledger: what lived, when, by category, module, op and line; FLOPs and bytes; the arena
 *
 * Models that are there
 *   model.h     a model as a struct; config.h reads one from Hugging Face's config.json
 *   nn.h        a net of it, its forward and loss; choices.h and engine.h: how it is run; lora.h: adapters
 *   train.h     the training step, with precision, accumulation and clipping; plan.h: its account beforehand
 *   infer.h     generating and evaluating, with cache.h and sample.h
 *
 * Numbers
 *   explain.h   a number as a formula, with formula.h for the polynomials; bill.h: the bill of one op
 *   hw.h        accelerators and this machine (machine.h); meter.h: the second instrument, which knows no ledger
 *   units.h     70B, 15T, GB and GiB as text; json.h writes JSON with every digit; format.h: tensors as text
 *
 * Files
 *   ckpt.h      checkpoints; weights.h and names.h: Hugging Face's weights; safetensors.h, gguf.h, npy.h
 *   tokens.h    files of tokens and what a run draws from them; tokenizer.h; data.h; run.h: a run's JSON
 *
 * Programs to begin from are in examples/: own_model.c (parameters and ops of one's own), training_loop.c (a net, data, a
 * checkpoint), memory_account.c (a plan without bytes).
 */
#ifndef TALLY_TALLY_H
#define TALLY_TALLY_H

#include "tally/base.h"
#include "tally/dtype.h"
#include "tally/formula.h"
#include "tally/tensor.h"
#include "tally/cpu.h"
#include "tally/account.h"
#include "tally/op.h"
#include "tally/ops.h"
#include "tally/ops_attention.h"
#include "tally/ops_choices.h"
#include "tally/ops_index.h"
#include "tally/ops_layers.h"
#include "tally/ops_moe.h"
#include "tally/ops_quantize.h"
#include "tally/views.h"
#include "tally/axes.h"
#include "tally/grad.h"
#include "tally/init.h"
#include "tally/model.h"
#include "tally/config.h"
#include "tally/choices.h"
#include "tally/engine.h"
#include "tally/nn.h"
#include "tally/lora.h"
#include "tally/names.h"
#include "tally/optim.h"
#include "tally/train.h"
#include "tally/plan.h"
#include "tally/cache.h"
#include "tally/infer.h"
#include "tally/sample.h"
#include "tally/explain.h"
#include "tally/bill.h"
#include "tally/hw.h"
#include "tally/machine.h"
#include "tally/meter.h"
#include "tally/units.h"
#include "tally/json.h"
#include "tally/format.h"
#include "tally/ckpt.h"
#include "tally/weights.h"
#include "tally/safetensors.h"
#include "tally/gguf.h"
#include "tally/npy.h"
#include "tally/tokens.h"
#include "tally/tokenizer.h"
#include "tally/data.h"
#include "tally/run.h"

#endif
