/* tests/family_models.h: the models of fixtures/family_fixtures.h as descriptions, written by hand from their config texts. */
#ifndef TALLY_TESTS_FAMILY_MODELS_H
#define TALLY_TESTS_FAMILY_MODELS_H

#include "tally/model.h"

int family_model_count(void);
/* Named as its fixture. */
tl_model family_model(int index);

#endif
