/* op/pad.h: what padding and tiling share. */
#ifndef TALLY_OP_PAD_H
#define TALLY_OP_PAD_H

#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_index.h"

/* The shape of `full` with attr's elements added; fails where too many are cut, or nothing is there to repeat. */
tl_status tl_sig_padded(tl_sig *sig, const tl_pad_attr *attr, const tl_shape *full, tl_shape *padded);
/* Each element of a tensor of shape `full` the sum of its copies in `gradient`. */
tl_tensor *tl_pad_backward(tl_tensor *gradient, const tl_pad_attr *attr, const tl_shape *full, const char *site);

#endif
