/* nn/family.h: what a family fixes whatever the sizes: read by the catalogue and by the readers of config.json, so that a model is
 * the same from either. */
#ifndef TALLY_NN_FAMILY_H
#define TALLY_NN_FAMILY_H

#include "tally/model.h"

/* Sets the family and its kinds of norm, block, positions, activation, biases and router in a zeroed model. */
void tl_model_start(tl_model *model, tl_family family);

#endif
