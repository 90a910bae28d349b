/* tests/small_models.h: models small enough to train in a test, with no two sizes equal unless a test wants that. */
#ifndef TALLY_TESTS_SMALL_MODELS_H
#define TALLY_TESTS_SMALL_MODELS_H

#include "tally/model.h"

tl_model small_gpt2(void);     /* 2 layers, D 24, H 3, F 80, V 59, C 20; tied; no dropout */
tl_model small_llama(void);    /* 2 layers, D 32, H 4, G 2, K 8, F 72, V 61; untied; no biases */
tl_model small_cruncher(void); /* the lecture's: D 64, 2 layers */

#endif
